"""No work is taken while another controller renews its lease, and it is given back when one comes later."""

import asyncio
from datetime import datetime

from tenure.controller.process import KarpenterLease
from tenure.model.errors import Fault, TryLater

LEASE = "karpenter-leader-election"


class FakeLeases:
    """Answers one after the other; the last one for good."""

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


async def test_it_waits_until_nobody_holds_the_lease_and_says_why() -> None:
    leases, reported = FakeLeases("karpenter-1", TryLater("cut"), ""), list[str]()
    lease, _ = make_lease(leases)
    await lease.wait_until_released(reported.append)
    assert leases.request_count == 3
    assert "karpenter-1" in reported[0] and LEASE in reported[0] and "cut" in reported[1]


async def test_one_that_comes_later_is_noticed_and_a_fault_is_not_one() -> None:
    leases = FakeLeases("", TryLater("cut"), "karpenter-2")
    lease, _ = make_lease(leases)
    await lease.wait_until_acquired()
    assert leases.request_count == 3


async def test_without_a_name_nobody_is_looked_for() -> None:
    leases = FakeLeases("karpenter-3")
    lease, stop = make_lease(leases, name="")
    await lease.wait_until_released(lambda _: None)
    waiting = asyncio.create_task(lease.wait_until_acquired())
    await asyncio.sleep(0.01)
    assert not waiting.done() and leases.request_count == 0
    stop.set()
    await waiting


async def test_a_stop_ends_both_waits() -> None:
    lease, stop = make_lease(FakeLeases("karpenter-4"))
    waiting = asyncio.create_task(lease.wait_until_released(lambda _: None))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    stop.set()
    await waiting
    await lease.wait_until_acquired()
