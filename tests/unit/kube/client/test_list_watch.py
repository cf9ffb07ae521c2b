"""The list-watch with paged lists, broken and silent connections, expired resource versions and throttling."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import AsyncMock
from weakref import finalize

import pytest
from aiohttp import web

from tenure.kube.client import list_watch
from tenure.kube.client.client import KubeClient
from tenure.kube.client.list_watch import Delta, ListWatch, _pause
from tenure.kube.client.resources import NODES
from tenure.model.errors import Forbidden, Throttled, TryLater
from tests.unit.kube.fake_api import FakeApi, error_response, event, item, list_response, serve_api, watch_response

PAGES = 20


@dataclass
class DeltaRecorder:
    """Records the delivered deltas."""

    deltas: list[Delta] = field(default_factory=list)

    def record(self, deltas: list[Delta]) -> None:
        self.deltas += deltas

    @property
    def descriptions(self) -> list[str]:
        return [_describe(delta) for delta in self.deltas]


def _describe(delta: Delta) -> str:
    metadata = delta.object["metadata"]
    return f"{'-' if delta.is_deleted else '+'}{metadata['name']}@{metadata['resourceVersion']}"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between attempts; the longest stays longer than the first."""
    monkeypatch.setattr(list_watch, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(list_watch, "_LONGEST_PAUSE", 0.01)


@asynccontextmanager
async def watch_nodes(api: FakeApi, *, silence: float = 30.0) -> AsyncIterator[tuple[ListWatch, DeltaRecorder]]:
    recorder = DeltaRecorder()
    async with serve_api(api) as client:
        watch = ListWatch(client, NODES, on_deltas=recorder.record, now=time.monotonic, silence=silence)
        task = asyncio.create_task(watch.run())
        try:
            yield watch, recorder
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def wait_until(is_met: Callable[[], bool]) -> None:
    for _ in range(2000):
        if is_met():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition was not met within 10 s")


async def test_watch_starts_at_the_version_of_the_paged_list() -> None:
    api = FakeApi()
    api.lists = [list_response(7, item("a", 1), more="next"), list_response(7, item("b", 2))]
    api.watches = [watch_response(event("MODIFIED", item("a", 8)), event("DELETED", item("b", 9)))]
    async with watch_nodes(api) as (watch, recorder):
        await wait_until(lambda: len(recorder.descriptions) == 4)
        assert watch.synced.is_set() and watch.is_fresh(0.0)
    assert recorder.descriptions == ["+a@1", "+b@2", "+a@8", "-b@9"]
    assert api.requests[1]["continue"] == "next"
    assert api.watch_versions == ["7"] and api.requests[2]["allowWatchBookmarks"] == "true"


async def test_broken_watch_resumes_at_the_last_bookmark() -> None:
    api = FakeApi()
    api.lists = [list_response(1)]
    api.watches = [
        watch_response(event("ADDED", item("a", 2)), event("BOOKMARK", item("", 40)), then="cut"),
        watch_response(event("ADDED", item("b", 41))),
    ]
    async with watch_nodes(api) as (_, recorder):
        await wait_until(lambda: "+b@41" in recorder.descriptions)
    assert recorder.descriptions == ["+a@2", "+b@41"]
    assert api.watch_versions == ["1", "40"] and api.list_count == 1


async def test_closed_watch_resumes_at_the_last_version(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    api.lists = [list_response(1)]
    api.watches = [
        watch_response(event("ADDED", item("a", 2)), then="end"),
        watch_response(event("ADDED", item("b", 3))),
    ]
    async with watch_nodes(api) as (_, recorder):
        await wait_until(lambda: "+b@3" in recorder.descriptions)
    assert api.watch_versions == ["1", "2"]


@pytest.mark.parametrize("where", ["in the stream", "on opening"])
async def test_expired_version_leads_to_a_relist_that_delivers_only_differences(where: str) -> None:
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    api = FakeApi()
    api.lists = [
        list_response(5, item("kept", 1), item("changed", 2), item("lost", 3)),
        list_response(50, *items_after_relist()),
    ]
    api.watches = [
        watch_response(event("ERROR", expired)) if where == "in the stream" else error_response(410, "Expired"),
        watch_response(),
    ]
    async with watch_nodes(api) as (watch, recorder):
        await wait_until(lambda: api.watch_versions == ["5", "50"])
        assert watch.relists == 2
    assert recorder.descriptions[:3] == ["+kept@1", "+changed@2", "+lost@3"]
    assert sorted(recorder.descriptions[3:]) == ["+changed@44", "+new@45", "-lost@3"]


def items_after_relist() -> list[dict[str, object]]:
    return [item("kept", 1), item("changed", 44), item("new", 45)]


async def test_expired_continue_token_restarts_the_list() -> None:
    api = FakeApi()
    api.lists = [
        list_response(1, item("a", 1), more="old"),
        error_response(410, "Expired"),
        list_response(3, item("b", 2)),
    ]
    api.watches = [watch_response()]
    async with watch_nodes(api) as (_, recorder):
        await wait_until(lambda: api.watch_versions == ["3"])
    assert recorder.descriptions == ["+a@1", "-a@1", "+b@2"]


async def test_first_list_is_delivered_before_it_is_complete() -> None:
    api = FakeApi()
    api.lists = [
        list_response(1, item("a", 1), item("b", 2), item("c", 3), more="next"),
        error_response(500, "InternalError"),
    ]
    async with watch_nodes(api) as (watch, recorder):
        await wait_until(lambda: len(recorder.deltas) == 3)
        assert not watch.synced.is_set()
    assert recorder.descriptions == ["+a@1", "+b@2", "+c@3"]


class TrackedItem(dict[str, Any]):
    """An object of which a weak reference can exist."""


class PagedClient:
    """Lists the same objects in PAGES pages. The first watch fails because its version has expired."""

    def __init__(self) -> None:
        self.alive, self.most, self.lists = 0, 0, 0

    async def request(self, method: str, path: str, *, params: dict[str, str], timeout: float) -> dict[str, Any]:
        page = int(params.get("continue", 1))
        self.lists += page == PAGES
        items = [TrackedItem(item(f"{page}-{number}", 1)) for number in range(10)]
        for one in items:
            finalize(one, self._forget)
        self.alive += len(items)
        self.most = max(self.most, self.alive)
        return {"metadata": {"resourceVersion": "1", "continue": str(page + 1) if page < PAGES else ""}, "items": items}

    def _forget(self) -> None:
        self.alive -= 1

    @asynccontextmanager
    async def stream_lines(self, path: str, **_: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        if self.lists == 1:
            raise TryLater("too old", code="Expired")
        await asyncio.Event().wait()
        yield AsyncMock()


async def test_relist_keeps_only_changed_objects_in_memory() -> None:
    client = PagedClient()
    watch = ListWatch(cast(KubeClient, client), NODES, on_deltas=lambda _: None, now=time.monotonic)
    task = asyncio.create_task(watch.run())
    await wait_until(lambda: watch.relists == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert client.most <= 3 * 10


async def test_silent_connection_is_replaced() -> None:
    api = FakeApi()
    api.lists = [list_response(1)]
    # On a busy machine the next connection may be silent for too long as well.
    api.watches = [watch_response(), *[watch_response(event("ADDED", item("a", 2)))] * 50]
    async with watch_nodes(api, silence=0.3) as (_, recorder):
        await wait_until(lambda: "+a@2" in recorder.descriptions)
    assert api.watch_versions[:2] == ["1", "1"]


async def test_watch_is_not_fresh_before_the_first_list_or_long_after_the_last_contact() -> None:
    api = FakeApi()
    api.lists = [
        error_response(429, "TooManyRequests", {"Retry-After": "0.01"}),
        error_response(500, "InternalError"),
        list_response(1),
    ]
    clock = [0.0]
    async with serve_api(api) as client:
        watch = ListWatch(client, NODES, on_deltas=lambda _: None, now=lambda: clock[0])
        assert not watch.is_fresh(1000)
        task = asyncio.create_task(watch.run())
        await watch.synced.wait()
        await wait_until(lambda: bool(api.watch_versions))
        clock[0] += 100
        assert not watch.is_fresh(5) and watch.is_fresh(1000), "the watch is not open, so the list ages"
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_line_longer_than_any_buffer_is_delivered() -> None:
    big = item("big", 2, data="x" * 3_000_000)
    api = FakeApi()
    api.lists = [list_response(1)]
    api.watches = [watch_response(event("ADDED", big))]
    async with watch_nodes(api) as (_, recorder):
        await wait_until(lambda: len(recorder.deltas) == 1)
    assert recorder.deltas[0].object == big


async def respond_as_proxy(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>\nlogin</html>\n")


async def test_page_of_a_proxy_does_not_end_the_watch() -> None:
    api = FakeApi()
    api.lists = [respond_as_proxy, list_response(1)]
    api.watches = [respond_as_proxy, watch_response(event("ADDED", item("a", 2)))]
    async with watch_nodes(api) as (_, recorder):
        await wait_until(lambda: recorder.descriptions == ["+a@2"])
    api.lists = [respond_as_proxy]
    async with serve_api(api) as client:
        with pytest.raises(TryLater, match="GET /api/v1/nodes: expected JSON, got b'<html>"):
            await client.request("GET", NODES.path())


async def test_throttled_request_is_retried_after_retry_after() -> None:
    api = FakeApi()
    api.lists = [error_response(429, "TooManyRequests", {"Retry-After": "0.01"}), list_response(1)]
    async with serve_api(api) as client:
        assert await client.request("GET", NODES.path()) == {"metadata": {"resourceVersion": "1"}, "items": []}
        assert client.calls == 2


async def test_persistent_throttling_raises_throttled_with_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.kube.client.client.THROTTLED_TRIES", 1)
    api = FakeApi()
    api.lists = [error_response(429, "TooManyRequests", {"Retry-After": "7"})]
    async with serve_api(api) as client:
        with pytest.raises(Throttled, match="said TooManyRequests") as caught:
            await client.request("GET", NODES.path())
    assert caught.value.retry_after == 7.0


def test_pause_before_a_new_watch_doubles_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.kube.client.list_watch.random.uniform", lambda shortest, longest: longest)
    assert [_pause(None, failures) for failures in range(1, 7)] == [0.001, 0.002, 0.004, 0.008, 0.01, 0.01]


def test_pause_follows_retry_after_and_is_longer_for_forbidden() -> None:
    assert 7 <= _pause(TryLater("503", retry_after=7), 1) <= 7.5
    assert _pause(Forbidden("no"), 1) > _pause(TryLater("503"), 1)
