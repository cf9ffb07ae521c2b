"""Probes, release of freed memory, and the lease of another controller."""

import asyncio
import ctypes
import socket
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
import structlog

from tenure.controller import process
from tenure.controller.process import Health, KarpenterLease
from tenure.gc_settings import read_resident_bytes
from tenure.model.errors import Fault, TryLater
from tenure.sandbox.ports import Ports
from tests.support.product.eventually import wait_until


class ProbeHarness:
    """A running probe server whose readiness the test sets."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.why_not = "starting"
        self.health = Health(self.port, lambda: self.why_not)

    async def get(self, path: str, *, host: str = "127.0.0.1") -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{self.port}{path}") as response:
            return response.status, await response.text()


@pytest.fixture
async def harness() -> AsyncIterator[ProbeHarness]:
    ports = Ports()
    running = ProbeHarness(ports.reserve())
    await running.health.start()
    yield running
    await running.health.close()
    ports.close()


async def test_waiting_process_is_alive_but_not_ready(harness: ProbeHarness) -> None:
    assert await harness.get("/healthz") == (200, "ok")
    assert await harness.get("/readyz") == (503, "starting")


async def test_readiness_follows_the_reported_reason(harness: ProbeHarness) -> None:
    harness.why_not = ""
    assert await harness.get("/readyz") == (200, "ok")
    harness.why_not = "another controller is active: karpenter-7d9f renews the lease"
    assert await harness.get("/readyz") == (503, harness.why_not)


@pytest.mark.usefixtures("plain_log")
async def test_shutdown_that_does_not_end_is_reported_with_its_place() -> None:
    async def stop_at_once() -> None:
        return

    async def wait_for_activity() -> None:
        await asyncio.Event().wait()

    async def never_stop() -> None:
        await wait_for_activity()

    stops = {"stopped": stop_at_once(), "blocked": never_stop()}
    with structlog.testing.capture_logs() as lines:
        assert await process.find_unfinished(stops, timedelta(milliseconds=20)) == ["blocked"]
    (line,) = lines
    assert line["task_queues"] == ["blocked"]
    assert any("never_stop > test_process.py" in task and "wait_for_activity" in task for task in line["tasks"])


async def test_probes_are_served_on_ipv6(harness: ProbeHarness) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    assert await harness.get("/healthz", host="[::1]") == (200, "ok")


async def test_occupied_port_is_an_error_at_start(harness: ProbeHarness) -> None:
    with pytest.raises(OSError):
        await Health(harness.port, lambda: "").start()


async def test_other_paths_and_methods_are_not_served(harness: ProbeHarness) -> None:
    for path in ("/", "/metrics", "/debug/pprof/", "/debug/pprof/profile"):
        assert (await harness.get(path))[0] == 404, path
    url = f"http://127.0.0.1:{harness.port}/readyz"
    async with aiohttp.ClientSession() as session, session.post(url) as response:
        assert response.status == 405


async def test_port_0_opens_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a port is opened")

    monkeypatch.setattr("tenure.controller.process.web.TCPSite", fail)
    health = Health(0, lambda: "")
    await health.start()
    await health.close()


async def test_close_frees_the_port(harness: ProbeHarness) -> None:
    await harness.health.close()
    restarted = Health(harness.port, lambda: "")
    await restarted.start()
    await restarted.close()


BLOCK, BLOCKS = 8_000, 8_000
"""64 MB in blocks that glibc keeps, because each is below its mmap threshold."""


@pytest.mark.parametrize(("gibibytes", "size"), [(None, 2000), (0.5, 2000), (1, 2100), (2, 7400), (4, 17800)])
def test_workflow_cache_size_follows_the_memory_limit(gibibytes: float | None, size: int) -> None:
    assert process.workflow_cache_size(None if gibibytes is None else int(gibibytes * (1 << 30))) == size


@pytest.mark.parametrize(("text", "limit"), [("2147483648\n", 2 << 30), ("max\n", None), (None, None)])
def test_memory_limit_is_read_from_the_container(tmp_path: Path, text: str | None, limit: int | None) -> None:
    file = tmp_path / "memory.max"
    if text is not None:
        file.write_text(text)
    assert process.memory_limit(file) == limit


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the allocator is not glibc's")
async def test_freed_memory_below_live_blocks_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [bytes(BLOCK) for _ in range(BLOCKS)]
    retained = [bytes(BLOCK) for _ in range(10)]
    blocks.clear()
    before = read_resident_bytes()
    monkeypatch.setattr(process, "TRIM_INTERVAL_SECONDS", 0.01)

    async def assert_most_is_trimmed() -> None:
        assert before - read_resident_bytes() > BLOCK * BLOCKS / 2

    trimming = asyncio.create_task(process.trim_memory())
    await wait_until(assert_most_is_trimmed, seconds=60, poll_interval=0.01)
    trimming.cancel()
    assert len(retained) == 10


LEASE = "karpenter-leader-election"


class FakeLeases:
    """Returns the responses in order and repeats the last one."""

    def __init__(self, *responses: str | Fault) -> None:
        self.responses = list(responses)
        self.request_count = 0

    async def find_holder(self, namespace: str, name: str, *, now: datetime) -> str:
        assert (namespace, name) == ("", LEASE)
        self.request_count += 1
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, Fault):
            raise response
        return response


def make_lease(leases: FakeLeases, name: str = LEASE) -> tuple[KarpenterLease, asyncio.Event]:
    stop = asyncio.Event()
    return KarpenterLease(leases, name, stop, poll_seconds=0.001), stop


async def test_wait_ends_when_the_lease_is_released_and_reports_its_holder() -> None:
    leases, reported = FakeLeases("karpenter-1", TryLater("cut"), ""), list[str]()
    lease, _ = make_lease(leases)
    observed = list[int]()
    await lease.wait_until_released(reported.append, lambda: observed.append(leases.request_count))
    assert leases.request_count == 3 and observed == [1], "unreadable leases have no known holder"
    assert "karpenter-1" in reported[0] and LEASE in reported[0] and "cut" in reported[1]


async def test_later_holder_is_detected_and_errors_are_ignored() -> None:
    leases = FakeLeases("", TryLater("cut"), "karpenter-2")
    lease, _ = make_lease(leases)
    await lease.wait_until_acquired()
    assert leases.request_count == 3


async def test_no_lease_is_read_without_a_name() -> None:
    leases = FakeLeases("karpenter-3")
    lease, stop = make_lease(leases, name="")
    await lease.wait_until_released(lambda _: None, lambda: None)
    waiting = asyncio.create_task(lease.wait_until_acquired())
    await asyncio.sleep(0.01)
    assert not waiting.done() and leases.request_count == 0
    stop.set()
    await waiting


async def test_stop_ends_both_waits() -> None:
    lease, stop = make_lease(FakeLeases("karpenter-4"))
    waiting = asyncio.create_task(lease.wait_until_released(lambda _: None, lambda: None))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    stop.set()
    await waiting
    await lease.wait_until_acquired()
