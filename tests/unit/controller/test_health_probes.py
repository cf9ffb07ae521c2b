"""The two probes: alive always, ready only with nothing to wait for, and the reason when not."""

import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tenure.controller.process import Health
from tenure.sandbox.ports import Ports


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


async def test_a_process_is_alive_while_it_waits(harness: ProbeHarness) -> None:
    assert await harness.get("/healthz") == (200, "ok")
    assert await harness.get("/readyz") == (503, "starting")


async def test_it_is_ready_when_there_is_nothing_to_wait_for_and_not_again_later(harness: ProbeHarness) -> None:
    harness.why_not = ""
    assert await harness.get("/readyz") == (200, "ok")
    harness.why_not = "another controller is at work: karpenter-7d9f renews the lease"
    assert await harness.get("/readyz") == (503, harness.why_not)


async def test_the_kubelet_of_an_ipv6_cluster_is_answered_too(harness: ProbeHarness) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    assert await harness.get("/healthz", host="[::1]") == (200, "ok")


async def test_a_port_that_is_taken_is_an_error_at_start(harness: ProbeHarness) -> None:
    with pytest.raises(OSError):
        await Health(harness.port, lambda: "").start()


async def test_closing_frees_the_port(harness: ProbeHarness) -> None:
    await harness.health.close()
    restarted = Health(harness.port, lambda: "")
    await restarted.start()
    await restarted.close()
