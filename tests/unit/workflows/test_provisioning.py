"""Provisioning: when pending pods are planned, and how the NodeClaims of a plan get their instances."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError

import workflows.activity_options
from tenure.apis.labels import LAUNCH_GROUP, NODEPOOL
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import TryLater
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import FleetError, LaunchGroupMember
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import LaunchGroupJoinRequest, ObservedDemand, ObservedUnavailableOfferings
from tenure.model.plan import LaunchDraft, PlanOutcome
from tenure.model.workflow_states import BatchWindow, ProvisioningState
from tests.support.fakes.worker import IDLE_TIMEOUT_SECONDS, WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    has_continued_as_new,
    is_in_phase,
    wait_until,
    wait_until_idle,
    wait_until_phase,
    wait_until_skipping_time,
)
from workflows import ids
from workflows.provisioner import ProvisioningWorkflow

Provisioning = WorkflowHandle[ProvisioningWorkflow, None]
DENIED = FleetError(code="UnauthorizedOperation", message="no", reason="Unauthorized", remedy="allow it")


@pytest.fixture
async def planning(fake: WorkerHarness) -> AsyncIterator[WorkerHarness]:
    """With a process that hosts the watch and the planner."""
    async with fake.running_planner():
        yield fake


async def start_provisioning(fake: WorkerHarness, state: ProvisioningState | None = None) -> Provisioning:
    return await fake.client.start_workflow(
        ProvisioningWorkflow.run,
        state or ProvisioningState(cluster=fake.cluster),
        id=ids.provisioning(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


def open_window_state(fake: WorkerHarness) -> ProvisioningState:
    """A state whose batch window stays open."""
    hour = timedelta(hours=1)
    return ProvisioningState(cluster=fake.cluster, window=BatchWindow(idle=hour, longest=hour))


async def signal_pending_pods(fake: WorkerHarness, handle: Provisioning, newest: datetime) -> None:
    """Signal only while the workflow is idle, because it may be continuing as new."""
    await wait_until_idle(handle, timeout=IDLE_TIMEOUT_SECONDS)
    fake.number += 1
    await handle.signal(
        ProvisioningWorkflow.pending_pods, ObservedDemand(number=fake.number, pods=1, newest_pod_at=newest)
    )


async def make_launch_draft(fake: WorkerHarness, *names: str, group_id: str = "group-1") -> LaunchDraft:
    """Add NodeClaims of a plan, and return the draft of their launch."""
    born = await fake.now()
    for name in names:
        fake.claims.add(name, born=born, labels={NODEPOOL: "default"}, annotations={LAUNCH_GROUP: group_id})
    members = tuple(LaunchGroupMember(name=name, uid=f"uid-{name}") for name in sorted(names))
    return LaunchDraft(group_id=group_id, pool="default", node_class="default", members=members)


async def launch_group(planning: WorkerHarness, *names: str) -> Provisioning:
    """Start Provisioning with a plan whose launch draft has these NodeClaims."""
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, *names),))]
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    return handle


async def signal_waiting_pods(fake: WorkerHarness, handle: Provisioning) -> None:
    """Signal pods that have waited longer than any batch window."""
    await signal_pending_pods(fake, handle, await fake.now() - timedelta(minutes=1))


def join_request(name: str) -> LaunchGroupJoinRequest:
    return LaunchGroupJoinRequest(name=name, uid=f"uid-{name}", pool="default", node_class="default", launch_hash="x")


def get_nodeclaim(fake: WorkerHarness, name: str) -> NodeClaim:
    return NodeClaim.model_validate(fake.claims.found[name])


async def planning_times(handle: Provisioning) -> list[datetime]:
    """Times at which planning passes were scheduled."""
    events = (await handle.fetch_history()).events
    return [
        event.event_time.ToDatetime().astimezone()
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "plan_capacity"
    ]


async def has_planning_passes(fake: WorkerHarness, count: int) -> bool:
    """Use "at least": a pass whose result was lost is repeated."""
    return len(fake.host.planned) >= count


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
    handle = await start_provisioning(planning, ProvisioningState(cluster=planning.cluster, window=window))
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
    handle = await start_provisioning(planning, open_window_state(planning))
    now = await planning.now()
    await signal_pending_pods(planning, handle, now)
    await handle.signal(
        ProvisioningWorkflow.pending_pods, ObservedDemand(number=90, pods=2, newest_pod_at=now, at_once=True)
    )
    await handle.signal(ProvisioningWorkflow.pending_pods, ObservedDemand(number=91, pods=3, newest_pod_at=now))
    await wait_until(lambda: has_planning_passes(planning, 1))


async def test_starting_worker_sets_batch_window(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning, open_window_state(planning))
    await handle.signal(ProvisioningWorkflow.set_batch_window, BatchWindow())
    began = await planning.now()
    await signal_pending_pods(planning, handle, began)
    await wait_until_skipping_time(planning, lambda: has_planning_passes(planning, 1))
    assert await planning.now() - began < timedelta(minutes=5)


async def test_older_demand_is_ignored(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning, open_window_state(planning))
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


async def test_group_is_launched_with_one_call_and_members_get_results(planning: WorkerHarness) -> None:
    handle = await launch_group(planning, "a", "b", "c")
    await wait_until_launched(planning, "a", "b", "c")
    assert len(planning.fleet.calls) == 1 and len(planning.instances.running) == 3
    await wait_until(lambda: has_no_groups(handle))


async def test_lost_launch_response_does_not_duplicate_instances(planning: WorkerHarness) -> None:
    planning.fleet.lost_responses = [TryLater("connection cut"), TryLater("connection cut")]
    await launch_group(planning, "a", "b")
    await planning.sleep(seconds=10)
    await wait_until_launched(planning, "a", "b")
    assert len(planning.fleet.calls) == 3 and len(set(planning.fleet.calls)) == 1
    assert len(planning.instances.running) == 2


async def test_rejected_group_deletes_its_members(planning: WorkerHarness) -> None:
    planning.node_classes.add("default", ready="False")
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "a", "b"),))]
    nodeclaim_handles = [planning.workflow_handle(get_nodeclaim(planning, name)) for name in "ab"]
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: not planning.claims.found)
    assert [(await nodeclaim_handle.result()).reason for nodeclaim_handle in nodeclaim_handles] == [
        "NodeClassNotReady",
        "NodeClassNotReady",
    ]
    state = await handle.query(ProvisioningWorkflow.state)
    assert state.drafts == () and state.groups == () and planning.fleet.calls == []


async def test_failed_group_is_retried_while_next_group_launches(
    planning: WorkerHarness,
) -> None:
    """Deleted at once, its members would be planned again at once, in an endless loop (reference 3.2)."""
    planning.fleet.next_error = DENIED
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "a", "c"),))]
    handle = await start_provisioning(planning)
    nodeclaim_handle = await planning.start(get_nodeclaim(planning, "a"))
    await signal_waiting_pods(planning, handle)
    await wait_until_phase(nodeclaim_handle, Phase.LAUNCH)
    await wait_until(lambda: waits_for_retry(handle, "Unauthorized"))
    assert planning.claims.condition_text("a", "Launched") == "Unknown Unauthorized"
    planning.fleet.next_error = DENIED
    await planning.sleep(seconds=11)
    await wait_until(lambda: has_fleet_calls(planning, 2))
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "b", group_id="2"),))]
    await signal_waiting_pods(planning, handle)
    await wait_until_launched(planning, "b")
    await planning.sleep(seconds=30)
    await wait_until_launched(planning, "a", "c")
    assert len(planning.instances.running) == 3 and len(planning.fleet.calls) == len(set(planning.fleet.calls)) == 4


async def test_members_without_capacity_launch_in_next_offering(
    planning: WorkerHarness,
) -> None:
    planning.fleet.types, planning.fleet.capacity_by_type = (
        ("m5.large", "c5.large", "r5.large"),
        {"m5.large": 1, "c5.large": 1},
    )
    handle = await launch_group(planning, "a", "b", "c")
    await wait_until_launched(planning, "a", "b", "c")
    types = [get_nodeclaim(planning, name).instance_type for name in "abc"]
    assert types == ["m5.large", "c5.large", "r5.large"]
    assert planning.fleet.excluded_types == [[], ["m5.large"], ["m5.large", "c5.large"]]
    assert len(set(planning.fleet.calls)) == 3 and len(planning.host.planned) == 1
    state = await handle.query(ProvisioningWorkflow.state)
    assert {mark.instance_type for mark in state.unavailable} == {"m5.large", "c5.large"}
    assert await activity_summaries(handle, "launch_group") == [
        "CreateFleet group-1: 3 x default",
        "CreateFleet group-1 (attempt 2): 2 x default",
        "CreateFleet group-1 (attempt 3): 1 x default",
    ]


async def activity_summaries(handle: Provisioning, activity: str) -> list[str]:
    """Summaries of the scheduled activities with this name."""
    return [
        json.loads(event.user_metadata.summary.data)
        for event in (await handle.fetch_history()).events
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity
    ]


async def test_retry_launches_existing_members_only(planning: WorkerHarness) -> None:
    planning.fleet.next_error = DENIED
    handle = await launch_group(planning, "a", "b")
    await wait_until(lambda: waits_for_retry(handle, "Unauthorized"))
    del planning.claims.found["a"]
    await planning.sleep(seconds=15)
    await wait_until_launched(planning, "b")
    assert len(planning.instances.running) == 1


async def test_group_without_members_ends(planning: WorkerHarness) -> None:
    planning.fleet.next_error = DENIED
    handle = await launch_group(planning, "a")
    await wait_until(lambda: waits_for_retry(handle, "Unauthorized"))
    planning.claims.found.clear()
    await planning.sleep(seconds=15)
    state = await handle.query(ProvisioningWorkflow.state)
    assert state.drafts == () and state.groups == () and len(planning.fleet.calls) == 1


@pytest.mark.parametrize("others", [(), ("b",)])
@pytest.mark.parametrize("already_deleted", [False, True])
async def test_member_deleted_before_launch_ends_at_once(
    planning: WorkerHarness, others: tuple[str, ...], already_deleted: bool
) -> None:
    """With and without other members in the group, and also after the NodeClaim was removed."""
    draft = await make_launch_draft(planning, *others, "z")
    if others:
        draft = draft.model_copy(update={"joined": True})
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(draft,))]
    nodeclaim_handle = await planning.start(get_nodeclaim(planning, "z"))
    if already_deleted:
        del planning.claims.found["z"]
    else:
        planning.claims.set_status("z", deleting=True)
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    # The server skips no time while no client awaits a result.
    await wait_until(lambda: has_ended(nodeclaim_handle))
    assert (await nodeclaim_handle.result()).reason == "Deleted"
    await wait_until(lambda: have_instances(planning, *others))
    assert "z" not in planning.claims.found and len(planning.instances.running) == len(others)


async def test_recorded_but_unreported_instance_is_reported_to_member(planning: WorkerHarness) -> None:
    planning.fleet.next_error = DENIED
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "a", "b"),))]
    nodeclaim_handle = await planning.start(get_nodeclaim(planning, "a"))
    handle = await start_provisioning(planning)
    began = await planning.now()
    await signal_pending_pods(planning, handle, began - timedelta(minutes=1))
    await wait_until(lambda: waits_for_retry(handle, "Unauthorized"))
    planning.claims.set_status("a", provider_id="aws:///us-west-2a/i-1")
    await planning.sleep(seconds=15)
    await wait_until_launched(planning, "b")
    await wait_until(lambda: is_in_phase(nodeclaim_handle, Phase.REGISTRATION))
    assert await planning.now() - began < planning.deadlines.launch


async def test_standalone_nodeclaims_are_batched_like_pods(
    planning: WorkerHarness,
) -> None:
    handle = await start_provisioning(planning)
    window = BatchWindow(idle=timedelta(seconds=10), longest=timedelta(minutes=1))
    await handle.signal(ProvisioningWorkflow.set_batch_window, window)
    born = await planning.now()
    for name in "abc":
        planning.claims.add(name, born=born, labels={NODEPOOL: "default"})
        await handle.signal(ProvisioningWorkflow.join_launch_group, join_request(name))
        await planning.sleep(seconds=4)
    await planning.sleep(seconds=20)
    await wait_until(lambda: have_instances(planning, "a", "b", "c"))
    assert len(planning.fleet.calls) == 1


async def test_equal_standalone_nodeclaims_launch_together(
    planning: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The join window is longer than the default, because a busy machine may start the workflows slowly."""
    monkeypatch.setattr("workflows.launch_groups.JOIN_WINDOW", timedelta(seconds=20))
    planning.fleet.gate = asyncio.Event()
    await start_provisioning(planning)
    born = await planning.now()
    nodeclaim_handles = []
    for name, alike in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "x")):
        made = planning.claims.add(name, born=born, labels={NODEPOOL: "default"})
        nodeclaim_handles.append(await planning.start(made, alike=alike))
    await wait_until_skipping_time(planning, lambda: has_fleet_calls(planning, 2))
    for nodeclaim_handle in nodeclaim_handles:
        await wait_until_phase(nodeclaim_handle, Phase.LAUNCH)
    planning.fleet.gate.set()
    await wait_until_launched(planning, "a", "b", "c", "d")
    assert len(planning.fleet.calls) == 2 and len(planning.instances.running) == 4
    assert all("karpenter.sh/termination" in one["metadata"]["finalizers"] for one in planning.claims.found.values())


async def test_repeated_join_request_launches_one_instance(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning)
    planning.claims.add("a", born=await planning.now(), labels={NODEPOOL: "default"})
    planning.fleet.gate = asyncio.Event()
    await handle.signal(ProvisioningWorkflow.join_launch_group, join_request("a"))
    await handle.signal(ProvisioningWorkflow.join_launch_group, join_request("a"))
    await planning.sleep(seconds=2)
    await wait_until(lambda: has_fleet_calls(planning, 1))
    await handle.signal(ProvisioningWorkflow.join_launch_group, join_request("a"))
    await planning.sleep(seconds=2)
    planning.fleet.gate.set()
    await wait_until(lambda: have_instances(planning, "a"))
    await handle.signal(ProvisioningWorkflow.join_launch_group, join_request("a"))
    await planning.sleep(seconds=2)
    assert len(planning.fleet.calls) == 1 and len(planning.instances.running) == 1


async def test_nodeclaim_launches_alone_without_provisioning_workflow(fake: WorkerHarness) -> None:
    made = fake.claims.add("a", born=await fake.now(), labels={NODEPOOL: "default"})
    await wait_until_phase(await fake.start(made, alike="x"), Phase.REGISTRATION)
    assert len(fake.fleet.calls) == 1


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


async def waits_for_retry(handle: Provisioning, why: str) -> bool:
    """Whether a group waits for its next attempt."""
    state = await handle.query(ProvisioningWorkflow.state)
    return any(why in draft.why for draft in state.drafts)


async def test_partial_fleet_serves_some_members_and_marks_offering_unavailable(planning: WorkerHarness) -> None:
    planning.fleet.capacity = 1
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "a", "b"),))]
    other = await planning.start(get_nodeclaim(planning, "b"))
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    await wait_until_launched(planning, "a")
    await wait_until(lambda: "b" not in planning.claims.found)
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: has_planning_passes(planning, 2))
    unavailable_offerings = planning.host.planned[1].unavailable
    assert [(offering.instance_type, offering.zone) for offering in unavailable_offerings] == [
        ("m5.large", "us-west-2a")
    ]
    await planning.sleep(minutes=4)
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: has_planning_passes(planning, 3))
    assert planning.host.planned[2].unavailable == ()
    assert (await other.result()).reason == "InsufficientCapacity"


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


async def test_pass_with_stale_caches_is_repeated(planning: WorkerHarness) -> None:
    planning.host.outcomes = [PlanOutcome(plan_id="", blocked="caches are too old: pods")]
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: is_blocked_by(handle, "caches are too old"))
    await wait_until_skipping_time(planning, lambda: has_planning_passes(planning, 2))


async def test_continue_as_new_during_launch_duplicates_nothing(
    planning: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 30)
    planning.fleet.gate = asyncio.Event()
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "a", "b"),))]
    first = await start_provisioning(planning)
    earlier = await planning.now() - timedelta(minutes=1)
    await signal_pending_pods(planning, first, earlier)
    await wait_until(lambda: has_fleet_calls(planning, 1))
    following: Provisioning = planning.client.get_workflow_handle(first.id)
    while not await has_continued_as_new(planning.client, first):
        await trigger_planning_pass(planning, following, earlier)
    planning.fleet.gate.set()
    await wait_until_launched(planning, "a", "b")
    assert len(set(planning.fleet.calls)) == 1 and len(planning.instances.running) == 2
    await wait_until(lambda: has_no_groups(following))


async def test_rebuilt_workflow_launches_its_drafts(planning: WorkerHarness) -> None:
    draft = await make_launch_draft(planning, "a", "b")
    await start_provisioning(planning, ProvisioningState(cluster=planning.cluster, drafts=(draft,)))
    await wait_until_launched(planning, "a", "b")


async def wait_until_launched(fake: WorkerHarness, *names: str) -> None:
    await wait_until(lambda: have_instances(fake, *names))
    for name in names:
        await wait_until(partial(has_workflow, fake, name))
        await wait_until_phase(fake.workflow_handle(get_nodeclaim(fake, name)), Phase.REGISTRATION)


async def has_ended(handle: Handle) -> bool:
    return (await handle.describe()).status is not WorkflowExecutionStatus.RUNNING


async def has_workflow(fake: WorkerHarness, name: str) -> bool:
    """The workflow receives the launch result after the NodeClaim shows the provider ID."""
    try:
        await fake.workflow_handle(get_nodeclaim(fake, name)).describe()
    except RPCError:
        return False
    return True


async def have_instances(fake: WorkerHarness, *names: str) -> bool:
    return all("providerID" in fake.claims.found[name]["status"] for name in names)


async def has_no_groups(handle: Provisioning) -> bool:
    return (await handle.query(ProvisioningWorkflow.state)).groups == ()


async def has_fleet_calls(fake: WorkerHarness, times: int) -> bool:
    return len(fake.fleet.calls) == times


async def trigger_planning_pass(fake: WorkerHarness, handle: Provisioning, newest: datetime) -> None:
    count = len(fake.host.planned) + 1
    await signal_pending_pods(fake, handle, newest)
    await wait_until(lambda: has_planning_passes(fake, count))


async def is_blocked_by(handle: Provisioning, text: str) -> bool:
    found = (await handle.query(ProvisioningWorkflow.state)).blocked_by
    return text in found if text else not found
