"""The codec server: what Temporal's UI and CLI send comes back in the clear, for pages of one origin."""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Payload, Payloads

from tenure.controller.temporal.codec_server import make_app
from tenure.controller.temporal.encryption import EncryptionCodec

ORIGIN = "https://temporal.example.com"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"ip-10-0-0-1"')
KEYS = {"one": os.urandom(32)}


@pytest.fixture
async def client() -> AsyncIterator[Any]:
    async with TestClient(TestServer(make_app(EncryptionCodec(KEYS), ORIGIN))) as client:
        yield client


async def test_it_encodes_and_decodes(client: Any) -> None:
    request = MessageToDict(Payloads(payloads=[PLAIN]))
    encoded = await (await client.post("/encode", json=request)).json()
    assert "ip-10" not in str(encoded)
    response = await client.post("/decode", json=encoded)
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert list(ParseDict(await response.json(), Payloads()).payloads) == [PLAIN]


async def test_a_browser_is_told_which_pages_may_ask(client: Any) -> None:
    response = await client.options("/decode", headers={"Origin": "https://elsewhere.example.com"})
    assert response.status == 200 and response.headers["Access-Control-Allow-Origin"] == ORIGIN


@pytest.mark.parametrize("body", ["no json", '{"payloads": [{"metadata": 7}]}'])
async def test_what_is_no_list_of_payloads_is_refused(client: Any, body: str) -> None:
    assert (await client.post("/decode", data=body)).status == 400


async def test_what_other_keys_encrypted_is_refused_by_the_name_of_the_key(client: Any) -> None:
    (foreign,) = await EncryptionCodec({"two": os.urandom(32)}).encode([PLAIN])
    response = await client.post("/decode", json=MessageToDict(Payloads(payloads=[foreign])))
    assert response.status == 400 and "'two'" in await response.text()
