"""When the Cluster workflow is told to look: at once, then coalesced, and never while nothing that matters changes."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from tenure.controller.cache.dirty import TAGS
from tenure.controller.signals.disruption_trigger import Stirring
from tenure.controller.signals.signaller import Signal, Signaller
from tenure.model.disruption.commands import Stirred
from tests.support.controller.builders import Json, World, claim, node, pod, pool
from tests.support.fakes.turns import turns

STEP = 0.01
"""Seconds."""


class Told(Signaller):
    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def offer(self, signal: Signal) -> bool:
        self.signals.append(signal)
        return True


class Clock:
    """In the place of `time` and `asyncio`: it goes on only when it is told to, however busy the machine is."""

    Event, time_ns = asyncio.Event, staticmethod(time.time_ns)

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def wait_for(self, waits: Coroutine[Any, Any, object], seconds: float) -> None:
        waiting, ends = asyncio.ensure_future(waits), self.now + seconds
        try:
            while not waiting.done():
                if self.now >= ends:
                    raise TimeoutError
                await asyncio.sleep(0)
        finally:
            waiting.cancel()

    async def passes(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            await turns(10)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for name in ("time", "asyncio"):
        monkeypatch.setattr(f"tenure.controller.signals.disruption_trigger.{name}", clock)
    return clock


class Stage(World):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.told = Told()
        self.stirring = Stirring(self.caches, self.told, "east", first=0.05, every=0.05)
        self.hear("nodepools", pool())
        self.hear("nodeclaims", claim("c1", phase="Initialized"))
        self.hear("nodes", node("n1", of="c1"))
        self.hear("pods", pod("a", on="n1"), pod("agent", on="n1", owner="DaemonSet"))

    async def stirs(self, kind: str = "", *objects: Json, lost: bool = False) -> bool:
        """Whether something was told of a change, and once."""
        before = len(self.told.signals)
        if kind:
            (self.lose if lost else self.hear)(kind, *objects)
        self.stirring.look()
        await self.clock.passes(0.02)
        assert len(self.told.signals) <= before + 1
        found = len(self.told.signals) > before
        await self.clock.passes(0.06)
        return found


@pytest.fixture
async def stage(clock: Clock) -> AsyncIterator[Stage]:
    stage = Stage(clock)
    task = asyncio.create_task(stage.stirring.run())
    await clock.passes(0.08)
    yield stage
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_new_watch_says_so_once(stage: Stage) -> None:
    (first,) = stage.told.signals
    assert (first.workflow_id, first.name, first.start) == ("east/cluster", "stirred", None)
    assert isinstance(first.argument, Stirred) and first.argument.number > 0
    assert not await stage.stirs()


BUDGET = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"maxUnavailable": 1}, "status": {}}


@pytest.mark.parametrize(
    ("kind", "changed", "matters"),
    [
        ("pods", pod("b", on="n1"), True),
        ("pods", pod("a", on="n1", phase="Succeeded"), True),
        ("pods", pod("a", on="n1", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}), True),
        ("pods", pod("a", on="n1", metadata={"annotations": {"other": "true"}}), False),
        ("pods", pod("agent", on="n1", owner="DaemonSet", phase="Failed"), False),
        ("nodes", node("n1", of="c1", ready=False), True),
        ("nodes", node("n1", of="c1", resourceVersion="7"), False),
        ("nodeclaims", claim("c1", phase="Initialized", deleting=True), True),
        ("nodeclaims", claim("c1", phase="Initialized", annotations=dict.fromkeys(TAGS, "true")), False),
        ("nodeclaims", claim("c1", phase="Initialized", annotations=dict.fromkeys((*TAGS, "other"), "true")), True),
        ("nodepools", pool(disruption={"consolidateAfter": "1h"}), True),
        ("poddisruptionbudgets", BUDGET, True),
    ],
)
async def test_what_matters(stage: Stage, kind: str, changed: Json, matters: bool) -> None:
    assert await stage.stirs(kind, changed) is matters


async def test_a_pod_that_is_gone_and_new_prices_matter(stage: Stage) -> None:
    assert await stage.stirs("pods", pod("a", on="n1"), lost=True)
    stage.stirring.stir()
    assert await stage.stirs()


async def test_many_changes_are_told_as_one_and_the_last_is_not_forgotten(stage: Stage) -> None:
    async def change(number: int) -> None:
        stage.hear("pods", pod(f"more-{number}", on="n1"))
        stage.stirring.look()
        await asyncio.sleep(0)

    for number in range(50):
        last = time.time_ns()
        await change(number)
    await stage.clock.passes(0.12)
    told: list[Any] = stage.told.signals[1:]
    assert len(told) == 2, "the first change, and all that came while it was quiet"
    assert told[-1].argument.number >= last, "the last is among them"


class Slow(Stage):
    """With pauses of 0.1 to 0.8 s."""

    def __init__(self, clock: Clock, took: float = 0.0) -> None:
        super().__init__(clock)
        self.stirring = Stirring(self.caches, self.told, "east", took=lambda: took, first=0.1, every=0.8)
        self.moments: list[float] = []

    async def churn(self, seconds: float, gone_at: float | None = None) -> list[float]:
        """Pods keep coming; when words were told, in seconds since the first."""
        number, began = 0, self.clock.now
        running = asyncio.create_task(self.stirring.run())
        while (now := self.clock.now - began) < seconds:
            self.hear("pods", pod(f"more-{(number := number + 1)}", on="n1"))
            gone = gone_at is not None and now >= gone_at
            gone_at = None if gone else gone_at
            self.stirring.look(gone=gone)
            self.moments += [now] * (len(self.told.signals) - len(self.moments))
            await self.clock.passes(STEP)
        running.cancel()
        return self.moments


def gaps(moments: list[float]) -> list[float]:
    return [later - one for one, later in pairwise(moments)]


async def test_while_things_go_on_changing_it_is_told_ever_more_slowly(clock: Clock) -> None:
    found = gaps(await Slow(clock).churn(2.6))
    assert 3 <= len(found) <= 5 and found[0] < found[1] < found[2]


async def test_room_that_became_free_is_told_soon(clock: Clock) -> None:
    moments = await Slow(clock).churn(1.45, gone_at=1.0)
    assert any(1.0 <= one < 1.4 for one in moments)


async def test_the_planner_is_left_alone_for_longer_than_its_pass_takes(clock: Clock) -> None:
    found = gaps(await Slow(clock, took=0.15).churn(1.5))
    assert found and min(found) > 0.55
