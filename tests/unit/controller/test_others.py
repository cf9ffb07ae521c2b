"""No work is taken while another controller renews its lease, and it is given back when one comes later."""

import asyncio
from datetime import datetime

from tenure.controller.process import Others
from tenure.model.errors import Fault, TryLater

LEASE = "karpenter-leader-election"


class Leases:
    """Answers one after the other; the last one for good."""

    def __init__(self, *answers: str | Fault) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def holder(self, namespace: str, name: str, *, now: datetime) -> str:
        assert (namespace, name) == ("", LEASE)
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Fault):
            raise answer
        return answer


def others(leases: Leases, name: str = LEASE) -> tuple[Others, asyncio.Event]:
    stop = asyncio.Event()
    return Others(leases, name, stop, look_every=0.001), stop


async def test_it_waits_until_nobody_holds_the_lease_and_says_why() -> None:
    leases, said = Leases("karpenter-1", TryLater("cut"), ""), list[str]()
    seen, _ = others(leases)
    await seen.gone(said.append)
    assert leases.asked == 3
    assert "karpenter-1" in said[0] and LEASE in said[0] and "cut" in said[1]


async def test_one_that_comes_later_is_noticed_and_a_fault_is_not_one() -> None:
    leases = Leases("", TryLater("cut"), "karpenter-2")
    seen, _ = others(leases)
    await seen.come()
    assert leases.asked == 3


async def test_without_a_name_nobody_is_looked_for() -> None:
    leases = Leases("karpenter-3")
    seen, stop = others(leases, name="")
    await seen.gone(lambda _: None)
    waiting = asyncio.create_task(seen.come())
    await asyncio.sleep(0.01)
    assert not waiting.done() and leases.asked == 0
    stop.set()
    await waiting


async def test_a_stop_ends_both_waits() -> None:
    seen, stop = others(Leases("karpenter-4"))
    waiting = asyncio.create_task(seen.gone(lambda _: None))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    stop.set()
    await waiting
    await seen.come()
