"""Calls of hooks against a server on this machine: one key, JSON, whatever is answered; and no answer at all."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from activities.nodeclaim.hooks import HttpHookClient
from tenure.model.errors import TryLater
from tenure.model.hooks import CallResult


class Service:
    """Answers as it is told to, and knows what it was asked."""

    def __init__(self) -> None:
        self.reply: dict[str, Any] = {"status": 200}
        self.requests: list[tuple[str, Any]] = []
        self.closes = self.sleeps = False

    async def handle_request(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.headers["Idempotency-Key"], await request.json()))
        if self.closes and request.transport:
            request.transport.close()
        if self.sleeps:
            await asyncio.sleep(5)
        return web.Response(**self.reply)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def url(service: Service) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/drain", service.handle_request)
    async with TestServer(app) as server:
        yield str(server.make_url("/drain"))


async def call_hook(url: str, seconds: float = 60) -> CallResult:
    return await HttpHookClient().post(url, key="uid-a-beforeDrain-warn", body={"node": "node-a"}, seconds=seconds)


async def test_the_service_gets_the_key_and_json(service: Service, url: str) -> None:
    assert await call_hook(url) == CallResult(status=200)
    assert service.requests == [("uid-a-beforeDrain-warn", {"node": "node-a"})]


async def test_its_words_are_cut_and_on_one_line(service: Service, url: str) -> None:
    service.reply = {"status": 409, "text": "a replica\n is " + "away " * 1000}
    found = await call_hook(url)
    assert found.status == 409 and found.text.startswith("a replica is away") and len(found.text) == 150


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("soon", None), ("-1", 0.0)])
async def test_it_may_say_when_to_ask_again(service: Service, url: str, header: str, seconds: float | None) -> None:
    service.reply = {"status": 202, "headers": {"Retry-After": header}}
    assert (await call_hook(url)).retry_after == seconds


async def test_no_redirect_is_followed(service: Service, url: str) -> None:
    service.reply = {"status": 307, "headers": {"Location": url}}
    assert (await call_hook(url)).status == 307 and len(service.requests) == 1


async def test_no_answer_is_a_fault_that_passes(service: Service, url: str) -> None:
    service.sleeps = True
    with pytest.raises(TryLater, match="no answer within 0 s"):
        await call_hook(url, seconds=0.1)
    service.sleeps, service.closes = False, True
    with pytest.raises(TryLater, match="no answer: "):
        await call_hook(url)
    with pytest.raises(TryLater, match="no answer: "):
        await call_hook("http://127.0.0.1:1/drain")
    with pytest.raises(TryLater, match="no answer: "):
        await call_hook("http://no-such-host.invalid/drain")
