"""Drains that a PodDisruptionBudget blocks for long: few Temporal actions, and a pass after each signal."""

from collections import Counter

import pytest
from temporalio.api.enums.v1 import EventType

import workflows.activity_options
from tenure.model.provider_results import DrainPod, Eviction
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, count_scheduled, is_blocked_by, is_running, wait_until
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, ready_nodeclaim

ACTIONS = (
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
)
MAX_ACTIONS_A_DAY = 300


async def blocked_drain(fake: WorkerHarness) -> Handle:
    """A drain that waits for a budget, of which the watch has sent the first digest."""
    handle = await ready_nodeclaim(fake)
    fake.budgets.add("web", min_available="1", expected=1, desired=1, current=1)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "the budget web needs 1 healthy pod"
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "1 of 1 pods healthy"))
    await signal_change(fake, handle, "first")
    await wait_until(lambda: waits_for_pass(handle, 3))
    return handle


async def signal_change(fake: WorkerHarness, handle: Handle, digest: str) -> None:
    await fake.signal_observed(handle, **BUSY, deleting=True, drain=digest)


async def waits_for_pass(handle: Handle, passes: int) -> bool:
    """Whether this number of passes has ended, and the drain waits for the next one."""
    return await count_scheduled(handle, "drain_node") >= passes and not await is_running(handle, "drain_node")


async def count_actions(handle: Handle) -> int:
    events = Counter(one.event_type for one in (await handle.fetch_history()).events)
    return sum(events[one] for one in ACTIONS)


async def test_blocked_drain_costs_few_actions_a_day(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats are counted by the test of the activity."""
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 5_000)
    handle = await blocked_drain(fake)
    before = await count_actions(handle)
    await fake.sleep(days=1)
    actions = await count_actions(handle) - before
    assert 50 < actions <= MAX_ACTIONS_A_DAY, actions
    fake.pods.blocked.clear()
    await handle.result()


async def test_signal_of_the_watch_causes_an_eviction(fake: WorkerHarness) -> None:
    """The test skips no time, so no timer fires."""
    handle = await blocked_drain(fake)
    passes = await count_scheduled(handle, "drain_node")
    fake.pods.blocked.clear()
    await signal_change(fake, handle, "first")
    assert await count_scheduled(handle, "drain_node") == passes and fake.pods.evicted == []
    await signal_change(fake, handle, "second")
    await wait_until(lambda: fake.pods.evicted == ["web"])
    await handle.result()


async def test_change_during_a_pass_causes_another_pass(fake: WorkerHarness) -> None:
    """The test skips no time, so no timer fires."""
    handle, evict = await blocked_drain(fake), fake.pods.evict

    async def evict_before_change(pod: DrainPod) -> Eviction:
        eviction = await evict(pod)
        if not eviction.accepted:
            fake.pods.blocked.clear()
            await handle.signal("observe", fake.make_observation(**BUSY, deleting=True, drain="third"))
        return eviction

    fake.pods.evict = evict_before_change  # type: ignore[method-assign]
    await signal_change(fake, handle, "second")
    await wait_until(lambda: fake.pods.evicted == ["web"])
    await handle.result()


async def test_timer_replaces_a_lost_signal(fake: WorkerHarness) -> None:
    handle = await blocked_drain(fake)
    await fake.sleep(hours=2)
    fake.pods.blocked.clear()
    await fake.sleep(minutes=30, seconds=5)
    await wait_until(lambda: fake.pods.evicted == ["web"])
    await handle.result()


async def test_blocker_that_the_watch_does_not_see_is_tried_each_minute(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook rejects the eviction."""
    monkeypatch.setattr("activities.nodeclaim.drain.MIN_CHANGED_CODE_SECONDS", 0.0)
    handle = await blocked_drain(fake)
    fake.budgets.found.clear()
    fake.pods.blocked["web"] = "denied"
    await fake.sleep(minutes=20)
    await wait_until(lambda: is_blocked_by(handle, "denied"))
    fake.pods.blocked.clear()
    await fake.sleep(minutes=1, seconds=5)
    await wait_until(lambda: fake.pods.evicted == ["web"])
    await handle.result()
