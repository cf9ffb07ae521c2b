"""Provisioning: when demand is planned, and how the NodeClaims of a plan get their instances."""

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
    """With a process that hosts the watch and so plans."""
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
    """Whose window stays open."""
    hour = timedelta(hours=1)
    return ProvisioningState(cluster=fake.cluster, window=BatchWindow(idle=hour, longest=hour))


async def signal_pending_pods(fake: WorkerHarness, handle: Provisioning, newest: datetime) -> None:
    """Not while a run may just be being continued: see `idle`."""
    await wait_until_idle(handle, timeout=IDLE_TIMEOUT_SECONDS)
    fake.number += 1
    await handle.signal(
        ProvisioningWorkflow.pending_pods, ObservedDemand(number=fake.number, pods=1, newest_pod_at=newest)
    )


async def make_launch_draft(fake: WorkerHarness, *names: str, group_id: str = "group-1") -> LaunchDraft:
    """NodeClaims that a plan made, and the draft of their launch."""
    born = await fake.now()
    for name in names:
        fake.claims.add(name, born=born, labels={NODEPOOL: "default"}, annotations={LAUNCH_GROUP: group_id})
    members = tuple(LaunchGroupMember(name=name, uid=f"uid-{name}") for name in sorted(names))
    return LaunchDraft(group_id=group_id, pool="default", node_class="default", members=members)


async def launch_group(planning: WorkerHarness, *names: str) -> Provisioning:
    """Provisioning, which a plan has given a draft of these NodeClaims."""
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, *names),))]
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    return handle


async def signal_waiting_pods(fake: WorkerHarness, handle: Provisioning) -> None:
    """They have waited for longer than any batch is open."""
    await signal_pending_pods(fake, handle, await fake.now() - timedelta(minutes=1))


def join_request(name: str) -> LaunchGroupJoinRequest:
    return LaunchGroupJoinRequest(name=name, uid=f"uid-{name}", pool="default", node_class="default", launch_hash="x")


def get_nodeclaim(fake: WorkerHarness, name: str) -> NodeClaim:
    return NodeClaim.model_validate(fake.claims.found[name])


async def planning_times(handle: Provisioning) -> list[datetime]:
    """When each pass of planning was asked for."""
    events = (await handle.fetch_history()).events
    return [
        event.event_time.ToDatetime().astimezone()
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "plan_capacity"
    ]


async def has_planning_passes(fake: WorkerHarness, count: int) -> bool:
    """So many at least: a pass whose answer was lost is made again."""
    return len(fake.host.planned) >= count


async def test_a_batch_closes_when_no_newer_pod_came_for_the_idle_time(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning)
    newest = await planning.now()
    await signal_pending_pods(planning, handle, newest)
    await wait_until_skipping_time(planning, lambda: has_planning_passes(planning, 1))
    assert (await planning_times(handle))[0] - newest >= timedelta(seconds=1)


async def test_pods_that_keep_coming_are_planned_after_the_longest_window(planning: WorkerHarness) -> None:
    """Their window is longer than usual, so that it is not idle while a busy machine tells of the next one."""
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


async def test_pods_that_have_waited_already_are_planned_at_once(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: has_planning_passes(planning, 1))


async def test_pods_that_lost_their_place_wait_for_no_batch(planning: WorkerHarness) -> None:
    """Also while a window is open for others."""
    handle = await start_provisioning(planning, open_window_state(planning))
    now = await planning.now()
    await signal_pending_pods(planning, handle, now)
    await handle.signal(
        ProvisioningWorkflow.pending_pods, ObservedDemand(number=90, pods=2, newest_pod_at=now, at_once=True)
    )
    await handle.signal(ProvisioningWorkflow.pending_pods, ObservedDemand(number=91, pods=3, newest_pod_at=now))
    await wait_until(lambda: has_planning_passes(planning, 1))


async def test_a_worker_that_starts_says_how_long_a_batch_stays_open(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning, open_window_state(planning))
    await handle.signal(ProvisioningWorkflow.set_batch_window, BatchWindow())
    began = await planning.now()
    await signal_pending_pods(planning, handle, began)
    await wait_until_skipping_time(planning, lambda: has_planning_passes(planning, 1))
    assert await planning.now() - began < timedelta(minutes=5)


async def test_older_demand_is_no_new_demand(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning, open_window_state(planning))
    now = await planning.now()
    await handle.signal(ProvisioningWorkflow.pending_pods, ObservedDemand(number=5, pods=3, newest_pod_at=now))
    await handle.signal(ProvisioningWorkflow.pending_pods, ObservedDemand(number=4, pods=1, newest_pod_at=now))
    state = await handle.query(ProvisioningWorkflow.state)
    assert state.demand is not None and state.demand.pods == 3


async def test_demand_that_comes_during_a_pass_is_planned_in_the_next(planning: WorkerHarness) -> None:
    planning.host.gate = asyncio.Event()
    handle = await start_provisioning(planning)
    earlier = await planning.now() - timedelta(minutes=1)
    await signal_pending_pods(planning, handle, earlier)
    await wait_until(lambda: has_planning_passes(planning, 1))
    await signal_pending_pods(planning, handle, earlier + timedelta(seconds=1))
    planning.host.gate.set()
    await wait_until(lambda: has_planning_passes(planning, 2))
    assert len({request.plan_id for request in planning.host.planned}) == 2


async def test_a_group_launches_with_one_call_and_every_member_hears_of_it(planning: WorkerHarness) -> None:
    handle = await launch_group(planning, "a", "b", "c")
    await wait_until_launched(planning, "a", "b", "c")
    assert len(planning.fleet.calls) == 1 and len(planning.instances.running) == 3
    await wait_until(lambda: has_no_groups(handle))


async def test_a_lost_answer_is_asked_for_again_and_doubles_nothing(planning: WorkerHarness) -> None:
    planning.fleet.lost_responses = [TryLater("connection cut"), TryLater("connection cut")]
    await launch_group(planning, "a", "b")
    await planning.sleep(seconds=10)
    await wait_until_launched(planning, "a", "b")
    assert len(planning.fleet.calls) == 3 and len(set(planning.fleet.calls)) == 1
    assert len(planning.instances.running) == 2


async def test_a_group_that_is_refused_gives_its_members_up(planning: WorkerHarness) -> None:
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


async def test_a_launch_that_goes_wrong_is_tried_again_as_one_group_while_the_next_group_launches(
    planning: WorkerHarness,
) -> None:
    """Given up at once, its members would be planned anew at once, and so for ever (reference 3.2)."""
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


async def test_what_is_refused_in_one_offering_is_launched_in_the_next_without_a_new_claim(
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
    """Of each time that a run asked for an activity of this name."""
    return [
        json.loads(event.user_metadata.summary.data)
        for event in (await handle.fetch_history()).events
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity
    ]


async def test_another_attempt_is_made_only_for_members_that_are_still_there(planning: WorkerHarness) -> None:
    planning.fleet.next_error = DENIED
    handle = await launch_group(planning, "a", "b")
    await wait_until(lambda: waits_for_retry(handle, "Unauthorized"))
    del planning.claims.found["a"]
    await planning.sleep(seconds=15)
    await wait_until_launched(planning, "b")
    assert len(planning.instances.running) == 1


async def test_a_group_without_members_is_over(planning: WorkerHarness) -> None:
    planning.fleet.next_error = DENIED
    handle = await launch_group(planning, "a")
    await wait_until(lambda: waits_for_retry(handle, "Unauthorized"))
    planning.claims.found.clear()
    await planning.sleep(seconds=15)
    state = await handle.query(ProvisioningWorkflow.state)
    assert state.drafts == () and state.groups == () and len(planning.fleet.calls) == 1


@pytest.mark.parametrize("others", [(), ("b",)])
@pytest.mark.parametrize("already_deleted", [False, True])
async def test_a_member_that_was_deleted_before_its_launch_ends_at_once(
    planning: WorkerHarness, others: tuple[str, ...], already_deleted: bool
) -> None:
    """Whether its group is for others too or not, and also where nothing kept its NodeClaim."""
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
    # No time is skipped while nobody waits for a result.
    await wait_until(lambda: is_over(nodeclaim_handle))
    assert (await nodeclaim_handle.result()).reason == "Deleted"
    await wait_until(lambda: have_instances(planning, *others))
    assert "z" not in planning.claims.found and len(planning.instances.running) == len(others)


async def test_a_member_whose_instance_was_written_down_and_not_told_is_told(planning: WorkerHarness) -> None:
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


async def test_claims_of_a_pool_that_no_plan_made_wait_for_each_other_as_long_as_pods_do(
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


async def test_claims_of_a_pool_that_no_plan_made_launch_together_with_those_that_are_alike(
    planning: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are gathered for longer than usual, as a busy machine may take its time to start them."""
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


async def test_one_that_asks_twice_to_launch_with_others_is_bought_once(planning: WorkerHarness) -> None:
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


async def test_a_claim_of_a_pool_launches_itself_where_there_is_no_provisioning(fake: WorkerHarness) -> None:
    made = fake.claims.add("a", born=await fake.now(), labels={NODEPOOL: "default"})
    await wait_until_phase(await fake.start(made, alike="x"), Phase.REGISTRATION)
    assert len(fake.fleet.calls) == 1


async def test_what_a_claim_that_launches_alone_was_refused_counts_in_the_next_plan(planning: WorkerHarness) -> None:
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


async def test_a_storm_that_the_watch_told_of_is_known_to_every_plan_after(planning: WorkerHarness) -> None:
    """Also to that of a worker that has read no message of it, and whatever a launch was refused since."""
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
    """A group waits for its next attempt."""
    state = await handle.query(ProvisioningWorkflow.state)
    return any(why in draft.why for draft in state.drafts)


async def test_a_fleet_that_is_too_small_serves_some_and_marks_what_was_missing(planning: WorkerHarness) -> None:
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


async def test_a_slow_group_holds_up_no_other(planning: WorkerHarness) -> None:
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


async def test_without_a_host_demand_is_kept_and_planned_as_soon_as_there_is_one(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(workflows.activity_options.PLAN, "schedule_to_start_timeout", timedelta(seconds=0.5))
    handle = await start_provisioning(fake)
    await signal_waiting_pods(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "no plan"), seconds=5)
    async with fake.running_planner():
        await wait_until_skipping_time(fake, lambda: has_planning_passes(fake, 1), seconds=5)
        await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, ""), seconds=5)


async def test_a_pass_on_caches_that_are_too_old_is_made_again(planning: WorkerHarness) -> None:
    planning.host.outcomes = [PlanOutcome(plan_id="", blocked="caches are too old: pods")]
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    await wait_until(lambda: is_blocked_by(handle, "caches are too old"))
    await wait_until_skipping_time(planning, lambda: has_planning_passes(planning, 2))


async def test_continuing_as_new_waits_for_no_group_and_buys_nothing_twice(
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


async def test_a_rebuilt_workflow_goes_on_with_the_drafts_that_it_carries(planning: WorkerHarness) -> None:
    draft = await make_launch_draft(planning, "a", "b")
    await start_provisioning(planning, ProvisioningState(cluster=planning.cluster, drafts=(draft,)))
    await wait_until_launched(planning, "a", "b")


async def wait_until_launched(fake: WorkerHarness, *names: str) -> None:
    await wait_until(lambda: have_instances(fake, *names))
    for name in names:
        await wait_until(partial(has_workflow, fake, name))
        await wait_until_phase(fake.workflow_handle(get_nodeclaim(fake, name)), Phase.REGISTRATION)


async def is_over(handle: Handle) -> bool:
    return (await handle.describe()).status is not WorkflowExecutionStatus.RUNNING


async def has_workflow(fake: WorkerHarness, name: str) -> bool:
    """A claim's workflow hears of its instance a moment after the claim shows it."""
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
