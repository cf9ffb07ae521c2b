"""A NodeClaim workflow with encrypted payloads: its history contains no plaintext, and it completes as usual."""

import json
import os
from dataclasses import replace

from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.controller.temporal.encryption import EncryptionCodec
from tenure.controller.temporal.payload_codec import decrypt_all
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import query_state
from tests.support.workflows.nodeclaim_workflows import observe_empty, ready_nodeclaim, start_nodepool

SECRET = "aws:///us-west-2a"
"""A part of states, inputs and results."""


async def test_encrypted_history_contains_no_plaintext() -> None:
    codec = EncryptionCodec({"one": os.urandom(32)})
    async with time_skipping(replace(pydantic_data_converter, payload_codec=codec)) as skipping:
        fake = WorkerHarness.on(skipping)
        async with fake.running_worker():
            await start_nodepool(fake)
            handle = await ready_nodeclaim(fake)
            assert (await query_state(handle)).phase is Phase.READY
            await observe_empty(fake, handle)
            outcome = await handle.result()
        assert outcome.reason == "Empty"
        history = await handle.fetch_history()
    text = history.to_json()
    for plaintext in (SECRET, "node-a", "WhenEmpty"):
        assert plaintext not in _without_search_attributes(text), plaintext
    for event in history.events:
        decrypt_all(event, codec.decrypt)
    assert any(b"WhenEmpty" in event.SerializeToString() for event in history.events)


def _without_search_attributes(text: str) -> str:
    def cut(value: object) -> object:
        if isinstance(value, dict):
            return {key: cut(one) for key, one in value.items() if key != "searchAttributes"}
        return [cut(one) for one in value] if isinstance(value, list) else value

    return json.dumps(cut(json.loads(text)))
