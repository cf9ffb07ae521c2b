"""Signals that trigger a disruption pass: at once, then coalesced, and none without a relevant change."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from tenure.controller.cache.planner_changes import TAGS
from tenure.controller.signals import disruption_trigger
from tenure.controller.signals.disruption_trigger import DisruptionTrigger
from tenure.model.disruption.commands import ClusterChanged
from tests.support.controller.builders import CacheHarness, Json, claim, node, pod, pool
from tests.support.fakes.event_loop import run_pending_tasks
from tests.unit.controller.fake_temporal import RecordingSignalQueue

STEP = 0.01
"""Seconds."""


class FakeClock:
    """Replaces `time` and `wait_until_set`. It advances only on request, independent of the load of the machine."""

    time_ns = staticmethod(time.time_ns)

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def wait_until_set(self, event: asyncio.Event, timeout_seconds: float) -> bool:
        ends_at = self.now + timeout_seconds
        while True:
            if event.is_set() or self.now >= ends_at:
                return event.is_set()
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            await run_pending_tasks(10)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(disruption_trigger, "time", clock)
    monkeypatch.setattr(disruption_trigger, "wait_until_set", clock.wait_until_set)
    return clock


class DisruptionTriggerHarness(CacheHarness):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.signal_queue = RecordingSignalQueue()
        self.disruption_trigger = DisruptionTrigger(
            self.cache, self.signal_queue, "east", min_interval=0.05, max_interval=0.05
        )
        self.apply_objects("nodepools", pool())
        self.add_running_node()
        self.apply_objects("pods", pod("a", on="n1"), pod("agent", on="n1", owner="DaemonSet"))

    async def triggers(self, kind: str = "", *objects: Json, lost: bool = False) -> bool:
        """Apply a change and return whether it caused a signal. At most one is allowed."""
        before = len(self.signal_queue.signals)
        if kind:
            (self.delete_objects if lost else self.apply_objects)(kind, *objects)
        self.disruption_trigger.on_change()
        await self.clock.advance(0.02)
        assert len(self.signal_queue.signals) <= before + 1
        found = len(self.signal_queue.signals) > before
        await self.clock.advance(0.06)
        return found


@pytest.fixture
async def harness(clock: FakeClock) -> AsyncIterator[DisruptionTriggerHarness]:
    harness = DisruptionTriggerHarness(clock)
    task = asyncio.create_task(harness.disruption_trigger.run())
    await clock.advance(0.08)
    yield harness
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_new_controller_signals_once(harness: DisruptionTriggerHarness) -> None:
    (first,) = harness.signal_queue.signals
    assert (first.workflow_id, first.name, first.start) == ("east/cluster", "cluster_changed", None)
    assert isinstance(first.argument, ClusterChanged) and first.argument.number > first.argument.watch > 0
    assert not await harness.triggers()


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
async def test_relevant_change_triggers_a_signal(
    harness: DisruptionTriggerHarness, kind: str, changed: Json, matters: bool
) -> None:
    assert await harness.triggers(kind, changed) is matters


async def test_deleted_pod_and_explicit_trigger_cause_a_signal(harness: DisruptionTriggerHarness) -> None:
    assert await harness.triggers("pods", pod("a", on="n1"), lost=True)
    harness.disruption_trigger.trigger()
    assert await harness.triggers()


async def test_many_changes_are_coalesced_including_the_last(harness: DisruptionTriggerHarness) -> None:
    async def change(number: int) -> None:
        harness.apply_objects("pods", pod(f"more-{number}", on="n1"))
        harness.disruption_trigger.on_change()
        await asyncio.sleep(0)

    for number in range(50):
        last = time.time_ns()
        await change(number)
    await harness.clock.advance(0.12)
    signals: list[Any] = harness.signal_queue.signals[1:]
    assert len(signals) == 2, "one for the first change, one for all later ones"
    assert signals[-1].argument.number >= last, "the second signal covers the last change"


class BackoffHarness(DisruptionTriggerHarness):
    """Signals with an interval of 0.1 to 0.8 s."""

    def __init__(self, clock: FakeClock, took: float = 0.0) -> None:
        super().__init__(clock)
        self.disruption_trigger = DisruptionTrigger(
            self.cache, self.signal_queue, "east", last_pass_seconds=lambda: took, min_interval=0.1, max_interval=0.8
        )
        self.signal_times: list[float] = []

    async def churn(self, seconds: float, deleted_at: float | None = None) -> list[float]:
        """Keep adding pods for `seconds`. Returns the times of the signals, in seconds since the start."""
        number, began = 0, self.clock.now
        running = asyncio.create_task(self.disruption_trigger.run())
        while (now := self.clock.now - began) < seconds:
            self.apply_objects("pods", pod(f"more-{(number := number + 1)}", on="n1"))
            deleted = deleted_at is not None and now >= deleted_at
            deleted_at = None if deleted else deleted_at
            self.disruption_trigger.on_change(nodeclaims_deleted=deleted)
            self.signal_times += [now] * (len(self.signal_queue.signals) - len(self.signal_times))
            await self.clock.advance(STEP)
        running.cancel()
        return self.signal_times


def intervals(times: list[float]) -> list[float]:
    return [later - one for one, later in pairwise(times)]


async def test_interval_grows_while_changes_continue(clock: FakeClock) -> None:
    found = intervals(await BackoffHarness(clock).churn(2.6))
    assert 3 <= len(found) <= 5 and found[0] < found[1] < found[2]


async def test_deleted_nodeclaim_shortens_the_interval(clock: FakeClock) -> None:
    signal_times = await BackoffHarness(clock).churn(1.45, deleted_at=1.0)
    assert any(1.0 <= one < 1.4 for one in signal_times)


async def test_interval_exceeds_the_duration_of_a_pass(clock: FakeClock) -> None:
    found = intervals(await BackoffHarness(clock, took=0.15).churn(1.5))
    assert found and min(found) > 0.55
