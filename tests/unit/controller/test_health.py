"""The two probes: alive always, ready only with nothing to wait for, and the reason when not."""

import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tenure.controller.process import Health
from tenure.sandbox.ports import Ports


class Probed:
    """A running probe server whose readiness the test sets."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.why_not = "starting"
        self.health = Health(self.port, lambda: self.why_not)

    async def get(self, path: str, *, host: str = "127.0.0.1") -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{self.port}{path}") as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def probed() -> AsyncIterator[Probed]:
    ports = Ports()
    found = Probed(ports.take())
    await found.health.start()
    yield found
    await found.health.close()
    ports.close()


async def test_a_process_is_alive_while_it_waits(probed: Probed) -> None:
    assert await probed.get("/healthz") == (200, "ok")
    assert await probed.get("/readyz") == (503, "starting")


async def test_it_is_ready_when_there_is_nothing_to_wait_for_and_not_again_later(probed: Probed) -> None:
    probed.why_not = ""
    assert await probed.get("/readyz") == (200, "ok")
    probed.why_not = "another controller is at work: karpenter-7d9f renews the lease"
    assert await probed.get("/readyz") == (503, probed.why_not)


async def test_the_kubelet_of_an_ipv6_cluster_is_answered_too(probed: Probed) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    assert await probed.get("/healthz", host="[::1]") == (200, "ok")


async def test_a_port_that_is_taken_is_an_error_at_start(probed: Probed) -> None:
    with pytest.raises(OSError):
        await Health(probed.port, lambda: "").start()


async def test_closing_frees_the_port(probed: Probed) -> None:
    await probed.health.close()
    again = Health(probed.port, lambda: "")
    await again.start()
    await again.close()
