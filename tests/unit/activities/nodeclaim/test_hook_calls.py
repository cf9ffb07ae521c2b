"""Hook calls to a local HTTP server: idempotency key, JSON body, any response, and no response."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from activities.nodeclaim import hook_client
from activities.nodeclaim.hook_client import HttpHookClient
from tenure.model.errors import BadInput, TryLater
from tenure.model.hooks import CallResult


class Service:
    """Responds as configured and records requests."""

    def __init__(self) -> None:
        self.reply: dict[str, Any] = {"status": 200}
        self.requests: list[tuple[str, Any]] = []
        self.closes_connection = self.is_slow = False

    async def handle_request(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.headers["Idempotency-Key"], await request.json()))
        if self.closes_connection and request.transport:
            request.transport.close()
        if self.is_slow:
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


async def call_hook(url: str, seconds: float = 60, *, local_addresses: bool = True) -> CallResult:
    client = HttpHookClient(local_addresses=local_addresses)
    return await client.post(url, key="uid-a-beforeDrain-warn", body={"node": "node-a"}, seconds=seconds)


async def test_request_has_idempotency_key_and_json_body(service: Service, url: str) -> None:
    assert await call_hook(url) == CallResult(status=200)
    assert service.requests == [("uid-a-beforeDrain-warn", {"node": "node-a"})]


async def test_response_text_is_one_line_and_truncated(service: Service, url: str) -> None:
    service.reply = {"status": 409, "text": "a replica\n is " + "away " * 1000}
    found = await call_hook(url)
    assert found.status == 409 and found.text.startswith("a replica is away") and len(found.text) == 150


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("soon", None), ("-1", 0.0)])
async def test_retry_after_header_is_parsed(service: Service, url: str, header: str, seconds: float | None) -> None:
    service.reply = {"status": 202, "headers": {"Retry-After": header}}
    assert (await call_hook(url)).retry_after == seconds


async def test_redirect_is_not_followed(service: Service, url: str) -> None:
    service.reply = {"status": 307, "headers": {"Location": url}}
    assert (await call_hook(url)).status == 307 and len(service.requests) == 1


async def test_missing_response_is_retryable(service: Service, url: str) -> None:
    service.is_slow = True
    with pytest.raises(TryLater, match="no response within 0 s"):
        await call_hook(url, seconds=0.1)
    service.is_slow, service.closes_connection = False, True
    with pytest.raises(TryLater, match="no response: "):
        await call_hook(url)
    with pytest.raises(TryLater, match="no response: "):
        await call_hook("http://127.0.0.1:1/drain")
    with pytest.raises(TryLater, match="no response: "):
        await call_hook("http://no-such-host.invalid/drain")


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Resolve every name to these addresses; return the list of resolved names."""
    names: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        names.append(host)
        return [_address_info(one, port) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


def _address_info(address: str, port: int) -> tuple[Any, ...]:
    family, end = (socket.AF_INET6, (address, port, 0, 0)) if ":" in address else (socket.AF_INET, (address, port))
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", end


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0", "localhost"])
async def test_local_address_is_rejected(service: Service, url: str, host: str) -> None:
    with pytest.raises(BadInput, match=r" is at .*, a loopback address; expected another .* HOOK_LOCAL_ADDRESSES=true"):
        await call_hook(url.replace("127.0.0.1", host), local_addresses=False)
    assert service.requests == []


@pytest.mark.parametrize("addresses", [["169.254.169.254"], ["fd00:ec2::254", "::1"], ["::ffff:169.254.169.254"]])
async def test_name_with_local_address_is_rejected(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    resolve_to(monkeypatch, *addresses)
    with pytest.raises(BadInput, match=r"'hooks\.example\.com' is at "):
        await call_hook("http://hooks.example.com/drain", local_addresses=False)


async def test_address_is_checked_at_each_attempt(monkeypatch: pytest.MonkeyPatch, service: Service, url: str) -> None:
    """A name may resolve to an allowed address first and to a local one later."""
    named = url.replace("127.0.0.1", "hooks.example.com")
    names = resolve_to(monkeypatch, "127.0.0.1")
    with monkeypatch.context() as patch:
        patch.setattr(hook_client, "local_address_kind", lambda address: "")
        assert (await call_hook(named, local_addresses=False)).status == 200
    with pytest.raises(BadInput):
        await call_hook(named, local_addresses=False)
    assert names == ["hooks.example.com"] * 2 and len(service.requests) == 1


async def test_name_with_one_allowed_address_is_called_there(
    monkeypatch: pytest.MonkeyPatch, service: Service, url: str
) -> None:
    monkeypatch.setattr(hook_client, "local_address_kind", {"::1": "a loopback address", "127.0.0.1": ""}.__getitem__)
    resolve_to(monkeypatch, "::1", "127.0.0.1")
    assert (await call_hook(url.replace("127.0.0.1", "hooks.example.com"), local_addresses=False)).status == 200
    with pytest.raises(TryLater, match="no response: "):
        await call_hook("http://hooks.example.com:1/drain", local_addresses=False)
