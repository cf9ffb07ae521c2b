"""Launch groups: one CreateFleet call for the NodeClaims of a plan, its retries, and lost responses."""

import asyncio
import json
from contextlib import suppress
from datetime import datetime, timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

import workflows.activity_options
from tenure.apis.labels import REGISTERED_CONDITION
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import TryLater
from tenure.model.launch import FleetError
from tenure.model.nodeclaim.state import Phase
from tenure.model.plan import PlanOutcome
from tenure.model.provider_results import ConditionPatch
from tenure.model.signals import GroupResult
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import Provisioning, start_provisioning
from tests.support.workflows.eventually import (
    Handle,
    has_continued_as_new,
    is_blocked_by,
    is_in_phase,
    query_state,
    wait_until,
    wait_until_phase,
)
from tests.unit.workflows.provisioning.provisioning_workflow import (
    get_nodeclaim,
    has_fleet_calls,
    has_planning_passes,
    have_instances,
    launch_group,
    make_launch_draft,
    signal_pending_pods,
    signal_waiting_pods,
    wait_until_launched,
)
from workflows.provisioner import ProvisioningWorkflow

DENIED = FleetError(code="UnauthorizedOperation", message="no", reason="Unauthorized", remedy="allow it")


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


async def test_failed_group_is_retried_while_next_group_launches(planning: WorkerHarness) -> None:
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
    await wait_until(lambda: is_blocked_by(nodeclaim_handle, "Unauthorized"))
    assert (await query_state(nodeclaim_handle)).blocked_code == "LaunchFailed"
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "b", group_id="2"),))]
    await signal_waiting_pods(planning, handle)
    await wait_until_launched(planning, "b")
    await planning.sleep(seconds=30)
    await wait_until_launched(planning, "a", "c")
    assert len(planning.instances.running) == 3 and len(planning.fleet.calls) == len(set(planning.fleet.calls)) == 4


async def test_members_without_capacity_launch_in_next_offering(planning: WorkerHarness) -> None:
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
        # The time-skipping server rejects a signal to a run that just continues as new.
        with suppress(RPCError):
            await trigger_planning_pass(planning, following, earlier)
    planning.fleet.gate.set()
    await wait_until_launched(planning, "a", "b")
    assert len(set(planning.fleet.calls)) == 1 and len(planning.instances.running) == 2
    await wait_until(lambda: has_no_groups(following))


async def test_continue_as_new_during_assignment_keeps_status_of_registered_nodes(
    planning: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 30)
    gate, signal_result = asyncio.Event(), planning.workflows.signal_launch_result

    async def signal_slowly(claim: NodeClaim, result: GroupResult) -> None:
        await gate.wait()
        await signal_result(claim, result)

    monkeypatch.setattr(planning.workflows, "signal_launch_result", signal_slowly)
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, "a", "b"),))]
    first = await start_provisioning(planning)
    earlier = await planning.now() - timedelta(minutes=1)
    await signal_pending_pods(planning, first, earlier)
    await wait_until(lambda: have_instances(planning, "a", "b"))
    registered = ConditionPatch(type=REGISTERED_CONDITION, status="True")
    await planning.claims.patch("a", "uid-a", conditions=(registered,), now=earlier)
    following: Provisioning = planning.client.get_workflow_handle(first.id)
    while not await has_continued_as_new(planning.client, first):
        # The time-skipping server rejects a signal to a run that just continues as new.
        with suppress(RPCError):
            await trigger_planning_pass(planning, following, earlier)
    await wait_until(lambda: has_fleet_calls(planning, 2))
    gate.set()
    await wait_until(lambda: has_no_groups(following))
    assert planning.claims.condition_text("a", REGISTERED_CONDITION) == "True"


async def test_rebuilt_workflow_launches_its_drafts(planning: WorkerHarness) -> None:
    draft = await make_launch_draft(planning, "a", "b")
    await start_provisioning(planning, drafts=(draft,))
    await wait_until_launched(planning, "a", "b")


async def has_ended(handle: Handle) -> bool:
    return (await handle.describe()).status is not WorkflowExecutionStatus.RUNNING


async def has_no_groups(handle: Provisioning) -> bool:
    return (await handle.query(ProvisioningWorkflow.state)).groups == ()


async def trigger_planning_pass(fake: WorkerHarness, handle: Provisioning, newest: datetime) -> None:
    count = len(fake.host.planned) + 1
    await signal_pending_pods(fake, handle, newest)
    await wait_until(lambda: has_planning_passes(fake, count))
