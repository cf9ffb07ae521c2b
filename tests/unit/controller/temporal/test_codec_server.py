"""The codec server decrypts payloads for Temporal's UI and CLI, for pages of one origin."""

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


async def test_payloads_are_encoded_and_decoded(client: Any) -> None:
    request = MessageToDict(Payloads(payloads=[PLAIN]))
    encoded = await (await client.post("/encode", json=request)).json()
    assert "ip-10" not in str(encoded)
    response = await client.post("/decode", json=encoded)
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert list(ParseDict(await response.json(), Payloads()).payloads) == [PLAIN]


async def test_preflight_names_the_allowed_origin(client: Any) -> None:
    response = await client.options("/decode", headers={"Origin": "https://elsewhere.example.com"})
    assert response.status == 200 and response.headers["Access-Control-Allow-Origin"] == ORIGIN


@pytest.mark.parametrize("body", ["no json", '{"payloads": [{"metadata": 7}]}'])
async def test_invalid_body_is_rejected(client: Any, body: str) -> None:
    assert (await client.post("/decode", data=body)).status == 400


async def test_payload_of_an_unknown_key_is_rejected_with_the_key_name(client: Any) -> None:
    (foreign,) = await EncryptionCodec({"two": os.urandom(32)}).encode([PLAIN])
    response = await client.post("/decode", json=MessageToDict(Payloads(payloads=[foreign])))
    assert response.status == 400 and "'two'" in await response.text()
