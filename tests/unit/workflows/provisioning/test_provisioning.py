"""When pending pods are planned, and which observations a plan receives."""

import asyncio
from datetime import datetime, timedelta

import pytest

import workflows.activity_options
import workflows.provisioner
from tenure.model.instance_types import UnavailableOffering
from tenure.model.observations import ObservedDemand, ObservedUnavailableOfferings
from tenure.model.plan import PlanOutcome, ProvisioningBackoff, ReleasedPod
from tenure.model.workflow_states import BatchWindow
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import Provisioning, start_provisioning
from tests.support.workflows.eventually import (
    wait_until,
    wait_until_skipping_time,
)
from tests.unit.workflows.provisioning.provisioning_workflow import (
    OPEN_WINDOW,
    has_fleet_calls,
    has_planning_passes,
    make_launch_draft,
    signal_pending_pods,
    signal_waiting_pods,
    wait_until_launched,
)
from workflows.provisioner import ProvisioningWorkflow


async def planning_times(handle: Provisioning) -> list[datetime]:
    """Times at which planning passes were scheduled."""
    events = (await handle.fetch_history()).events
    return [
        event.event_time.ToDatetime().astimezone()
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "plan_capacity"
    ]


async def test_batch_window_closes_after_idle_time(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning)
    newest = await planning.now()
    await signal_pending_pods(planning, handle, newest)
    await wait_until_skipping_time(planning, lambda: has_planning_passes(planning, 1))
    assert (await planning_times(handle))[0] - newest >= timedelta(seconds=1)


async def test_continuous_demand_is_planned_after_longest_window(planning: WorkerHarness) -> None:
    """The window is longer than the default, so that a busy machine signals the next pod before the idle time ends."""
    longest = timedelta(seconds=600)
    window = BatchWindow(idle=timedelta(seconds=60), longest=longest)
    handle = await start_provisioning(planning, window=window)
    began = await planning.now()
    last = began
    while last - began < 1.6 * longest:
        last = await planning.now()
        await signal_pending_pods(planning, handle, last)
        await planning.sleep(seconds=30)
    first = (await planning_times(handle))[0]
    assert longest <= first - began and first < last


async def test_old_pods_are_planned_at_once(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: has_planning_passes(planning, 1))


async def test_displaced_pods_skip_batch_window(planning: WorkerHarness) -> None:
    """The open window of other pods does not delay them."""
    handle = await start_provisioning(planning, window=OPEN_WINDOW)
    now = await planning.now()
    await signal_pending_pods(planning, handle, now)
    await handle.signal(
        ProvisioningWorkflow.pending_pods, ObservedDemand(number=90, pods=2, newest_pod_at=now, at_once=True)
    )
    await handle.signal(ProvisioningWorkflow.pending_pods, ObservedDemand(number=91, pods=3, newest_pod_at=now))
    await wait_until(lambda: has_planning_passes(planning, 1))


async def test_starting_worker_sets_batch_window(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning, window=OPEN_WINDOW)
    await handle.signal(ProvisioningWorkflow.set_batch_window, BatchWindow())
    began = await planning.now()
    await signal_pending_pods(planning, handle, began)
    await wait_until_skipping_time(planning, lambda: has_planning_passes(planning, 1))
    assert await planning.now() - began < timedelta(minutes=5)


async def test_older_demand_is_ignored(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning, window=OPEN_WINDOW)
    now = await planning.now()
    await handle.signal(ProvisioningWorkflow.pending_pods, ObservedDemand(number=5, pods=3, newest_pod_at=now))
    await handle.signal(ProvisioningWorkflow.pending_pods, ObservedDemand(number=4, pods=1, newest_pod_at=now))
    state = await handle.query(ProvisioningWorkflow.state)
    assert state.demand is not None and state.demand.pods == 3


async def test_demand_during_pass_is_planned_in_next_pass(planning: WorkerHarness) -> None:
    planning.host.gate = asyncio.Event()
    handle = await start_provisioning(planning)
    earlier = await planning.now() - timedelta(minutes=1)
    await signal_pending_pods(planning, handle, earlier)
    await wait_until(lambda: has_planning_passes(planning, 1))
    await signal_pending_pods(planning, handle, earlier + timedelta(seconds=1))
    planning.host.gate.set()
    await wait_until(lambda: has_planning_passes(planning, 2))
    assert len({request.plan_id for request in planning.host.planned}) == 2


async def test_unavailable_offering_of_single_launch_is_used_in_next_plan(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning)
    mark = UnavailableOffering(
        instance_type="m5.large",
        zone="us-west-2a",
        capacity_type="spot",
        until=await planning.now() + timedelta(minutes=3),
    )
    await handle.signal(ProvisioningWorkflow.offerings_unavailable, ObservedUnavailableOfferings(unavailable=(mark,)))
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: has_planning_passes(planning, 1))
    assert planning.host.planned[0].unavailable == (mark,)


async def test_interruption_burst_is_passed_to_later_plans(planning: WorkerHarness) -> None:
    """The next worker may have read no interruption message, and later launch signals keep the burst."""
    handle = await start_provisioning(planning)
    until = await planning.now() + timedelta(minutes=5)
    await handle.signal(
        ProvisioningWorkflow.offerings_unavailable, ObservedUnavailableOfferings(unavailable=(), burst_ends_at=until)
    )
    await handle.signal(ProvisioningWorkflow.offerings_unavailable, ObservedUnavailableOfferings(unavailable=()))
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: has_planning_passes(planning, 1))
    assert planning.host.planned[0].burst_ends_at == until


async def test_slow_group_does_not_block_planning(planning: WorkerHarness) -> None:
    planning.fleet.gate = asyncio.Event()
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "a"),))]
    handle = await start_provisioning(planning)
    earlier = await planning.now() - timedelta(minutes=1)
    await signal_pending_pods(planning, handle, earlier)
    await wait_until(lambda: has_fleet_calls(planning, 1))
    await signal_pending_pods(planning, handle, earlier)
    await wait_until(lambda: has_planning_passes(planning, 2))
    planning.fleet.gate.set()
    await wait_until_launched(planning, "a")


async def test_demand_without_host_is_planned_after_host_starts(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(workflows.activity_options.PLAN, "schedule_to_start_timeout", timedelta(seconds=0.5))
    handle = await start_provisioning(fake)
    await signal_waiting_pods(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "no plan"), seconds=5)
    async with fake.running_planner():
        await wait_until_skipping_time(fake, lambda: has_planning_passes(fake, 1), seconds=5)
        await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, ""), seconds=5)


async def test_demand_of_another_host_is_planned_without_the_pause(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(workflows.activity_options.PLAN, "schedule_to_start_timeout", timedelta(seconds=0.2))
    monkeypatch.setattr(workflows.provisioner, "PLAN_RETRY_AFTER", timedelta(minutes=1))
    monkeypatch.setattr(workflows.provisioner, "MAX_PLAN_RETRY_AFTER", timedelta(hours=1))
    handle = await start_provisioning(fake)
    await signal_waiting_pods(fake, handle)
    await fake.sleep(minutes=4, seconds=10)  # The fourth pause lasts from the third to the fifth minute.
    async with fake.running_planner():
        signaled_at = await fake.now()
        await signal_waiting_pods(fake, handle)
        await wait_until_skipping_time(fake, lambda: has_planning_passes(fake, 1), seconds=5)
    assert (await planning_times(handle))[-1] - signaled_at < timedelta(seconds=30)


async def test_pass_with_stale_caches_is_repeated(planning: WorkerHarness) -> None:
    planning.host.outcomes = [PlanOutcome(plan_id="", blocked="caches are too old: pods")]
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: is_blocked_by(handle, "caches are too old"))
    await wait_until_skipping_time(planning, lambda: has_planning_passes(planning, 2))


async def test_backoffs_and_released_pods_of_a_plan_are_passed_to_the_next(planning: WorkerHarness) -> None:
    at = await planning.now()
    backoff = ProvisioningBackoff(pod_group="g", pod="shop/web", since=at, last_unused_at=at)
    released = ReleasedPod(uid="uid-p", scheduler_message="queue is full", why="not bound", since=at)
    planning.host.outcomes = [
        PlanOutcome(plan_id="", backoffs=(backoff,), released=(released,)),
        PlanOutcome(plan_id=""),
    ]
    handle = await start_provisioning(planning)
    for passes in (1, 2, 3):
        await signal_waiting_pods(planning, handle)
        await wait_until(lambda passes=passes: has_planning_passes(planning, passes))  # type: ignore[misc]
    assert [request.backoffs for request in planning.host.planned] == [(), (backoff,), (backoff,)]
    assert [request.released for request in planning.host.planned] == [(), (released,), (released,)]


async def is_blocked_by(handle: Provisioning, text: str) -> bool:
    found = (await handle.query(ProvisioningWorkflow.state)).blocked_by
    return text in found if text else not found
