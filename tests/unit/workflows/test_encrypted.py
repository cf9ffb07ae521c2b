"""A node's life with payloads encrypted: nothing of it can be read in its history, and it goes on as any other."""

import json
import os
from dataclasses import replace

from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.controller.temporal.encryption import Encrypting
from tenure.controller.temporal.payload_codec import decrypt_all
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.skipping import time_skipping
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import state_of
from tests.support.workflows.lives import emptied, pool, ready

SECRET = "aws:///us-west-2a"
"""In states, inputs and results."""


async def test_a_life_is_lived_and_its_history_says_nothing() -> None:
    codec = Encrypting({"one": os.urandom(32)})
    async with time_skipping(replace(pydantic_data_converter, payload_codec=codec)) as skipping:
        fake = World(skipping.client)
        async with fake.working():
            await pool(fake)
            handle = await ready(fake, skipping)
            assert (await state_of(handle)).phase is Phase.READY
            await emptied(fake, skipping, handle)
            outcome = await handle.result()
        assert outcome.reason == "Empty"
        history = await handle.fetch_history()
    text = history.to_json()
    for word in (SECRET, "node-a", "WhenEmpty"):
        assert word not in _without_search_attributes(text), word
    for event in history.events:
        decrypt_all(event, codec.decrypted)
    assert any(b"WhenEmpty" in event.SerializeToString() for event in history.events)


def _without_search_attributes(text: str) -> str:
    def cut(value: object) -> object:
        if isinstance(value, dict):
            return {key: cut(one) for key, one in value.items() if key != "searchAttributes"}
        return [cut(one) for one in value] if isinstance(value, list) else value

    return json.dumps(cut(json.loads(text)))
