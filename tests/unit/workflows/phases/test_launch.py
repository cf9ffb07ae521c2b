"""Launch of one NodeClaim or of a group member, with lost, late, early or repeated results."""

from datetime import timedelta
from unittest.mock import AsyncMock

import pytest

from tenure.apis.labels import LAUNCH_GROUP, NEEDS_ATTENTION, NODEPOOL
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import BadInput, TryLater
from tenure.model.launch import FleetError, LaunchedInstance, LaunchRejection
from tenure.model.nodeclaim.state import Phase
from tenure.model.provider_results import InstanceFacts
from tenure.model.signals import GroupResult
from tenure.policy.lifecycle.verdict import verdict_of
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    is_blocked_by,
    is_in_phase,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import create_nodeclaim, has_attention_condition
from workflows.nodeclaim import NodeClaimWorkflow


async def launch_group_member(fake: WorkerHarness) -> NodeClaim:
    return await create_nodeclaim(fake, labels={NODEPOOL: "default"}, annotations={LAUNCH_GROUP: "group-1"})


def launched_result(fake: WorkerHarness, number: int = 1) -> GroupResult:
    """The result that a launch group sends to its member after the launch."""
    fake.instances.running[f"i-{number}"] = InstanceFacts(instance_id=f"i-{number}", state="running")
    return GroupResult(
        group_id="group-1",
        result=LaunchedInstance(
            claim_uid="uid-a",
            provider_id=f"aws:///us-west-2a/i-{number}",
            instance_type="m5.large",
            zone="us-west-2a",
            capacity_type="spot",
            image_id="ami-1",
        ),
    )


def rejected_result(*, final: bool) -> GroupResult:
    rejection = LaunchRejection(reason="InsufficientCapacity", message="no m5.large", final=final)
    return GroupResult(group_id="group-1", result=rejection)


async def test_group_member_waits_without_its_own_launch(fake: WorkerHarness) -> None:
    handle = await fake.start(await launch_group_member(fake))
    await fake.sleep(minutes=1)
    assert (await query_state(handle)).phase is Phase.LAUNCH
    await handle.signal(NodeClaimWorkflow.launch_result, launched_result(fake))
    await wait_until_phase(handle, Phase.REGISTRATION)
    assert fake.fleet.calls == []


async def test_result_before_first_observation_starts_workflow(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = await launch_group_member(fake)
    start = AsyncMock(wraps=fake.client.start_workflow)
    monkeypatch.setattr(fake.client, "start_workflow", start)
    await fake.workflows.signal_launch_result(claim, launched_result(fake))
    handle = fake.workflow_handle(claim)
    await wait_until_phase(handle, Phase.REGISTRATION)
    options = start.call_args.kwargs
    assert (options["static_summary"], options["static_details"].split()[-2:]) == (
        "a of default",
        ["EC2NodeClass", "**default**"],
    )
    upserts = [
        event.upsert_workflow_search_attributes_event_attributes for event in (await handle.fetch_history()).events
    ]
    attributes = {key for one in upserts for key in one.search_attributes.indexed_fields}
    assert {"TenureInstanceType", "TenureZone", "TenureCapacityType", "TenureInstanceId"} <= attributes


async def test_only_first_launch_result_counts(fake: WorkerHarness) -> None:
    handle = await fake.start(await launch_group_member(fake))
    first = launched_result(fake)
    for result in (first, first, launched_result(fake, 2), rejected_result(final=True)):
        await handle.signal(NodeClaimWorkflow.launch_result, result)
    await wait_until_phase(handle, Phase.REGISTRATION)
    state = await query_state(handle)
    assert state.launched == first.result and state.rejection is None


async def test_group_member_with_final_rejection_is_deleted(fake: WorkerHarness) -> None:
    handle = await fake.start(await launch_group_member(fake))
    await handle.signal(NodeClaimWorkflow.launch_result, rejected_result(final=True))
    outcome = await handle.result()
    assert outcome.reason == "InsufficientCapacity"
    assert fake.claims.found == {}


async def test_group_member_with_retryable_rejection_launches_alone(fake: WorkerHarness) -> None:
    handle = await fake.start(await launch_group_member(fake))
    await handle.signal(NodeClaimWorkflow.launch_result, rejected_result(final=False))
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION), seconds=5)
    assert len(fake.fleet.calls) == 1 and len(fake.instances.running) == 1


async def test_member_deleted_during_launch_terminates_its_instance(fake: WorkerHarness) -> None:
    handle = await fake.start(await launch_group_member(fake))
    await fake.claims.ensure_finalizer("a", "uid-a")
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, deleting=True)
    await fake.sleep(seconds=30)
    assert (await query_state(handle)).phase is Phase.LAUNCH
    await handle.signal(NodeClaimWorkflow.launch_result, launched_result(fake))
    outcome = await handle.result()
    assert outcome.reason == "Deleted"
    assert fake.instances.terminated == ["i-1"] and fake.claims.found == {}


async def test_workflow_started_after_nodeclaim_removal_ends_without_group_result(fake: WorkerHarness) -> None:
    """A resync that races the end of the first workflow starts such a workflow. No group contains its NodeClaim."""
    claim = await launch_group_member(fake)
    handle = await fake.start(claim, deleting=True)
    await fake.sleep(seconds=5)
    assert (await query_state(handle)).phase is Phase.LAUNCH
    fake.claims.found.clear()
    await fake.signal_observed(handle, exists=False)
    outcome = await handle.result()
    assert outcome.reason == "Deleted" and fake.fleet.calls == []
    started, ended = outcome.history[0].at, outcome.history[-1].at
    assert ended - started < timedelta(minutes=1), f"the workflow waited {ended - started}"


async def test_unresponsive_launch_group_times_out(fake: WorkerHarness) -> None:
    claim = await launch_group_member(fake)
    handle = await fake.start(claim)
    outcome = await handle.result()
    assert outcome.reason == "LaunchTimeout"
    created_at = claim.metadata.creation_timestamp
    assert created_at is not None and outcome.history[-1].at - created_at >= timedelta(minutes=5)
    assert fake.events.reasons_for("a") == ["LaunchTimeout"] and fake.fleet.calls == []


async def test_instance_after_launch_deadline_is_terminated(fake: WorkerHarness) -> None:
    handle = await fake.start(await launch_group_member(fake))
    fake.claims.faults["release"] = [BadInput("no")]
    await fake.sleep(minutes=5, seconds=5)
    await wait_until_phase(handle, Phase.TERMINATION)
    await handle.signal(NodeClaimWorkflow.launch_result, launched_result(fake))
    await handle.result()
    assert fake.instances.terminated == ["i-1"]


async def test_lost_create_fleet_response_launches_one_instance(fake: WorkerHarness) -> None:
    fake.fleet.lost_responses = [TryLater("connection cut"), TryLater("connection cut")]
    handle = await fake.start(await create_nodeclaim(fake))
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION))
    assert len(fake.fleet.calls) == 3 and len(set(fake.fleet.calls)) == 1
    assert len(fake.instances.running) == 1
    assert (await query_state(handle)).launch_attempt == 1


async def test_failed_launch_is_retried_with_new_token(fake: WorkerHarness) -> None:
    fake.fleet.next_error = FleetError(code="InternalError", message="try again")
    handle = await fake.start(await create_nodeclaim(fake))
    await wait_until(lambda: is_blocked_by(handle, "InternalError"))
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION), seconds=5)
    assert len(fake.fleet.calls) == 2 and len(set(fake.fleet.calls)) == 2
    assert len(fake.instances.running) == 1


async def test_rejection_that_repeats_needs_attention_until_the_launch(fake: WorkerHarness) -> None:
    denied = FleetError(code="UnauthorizedOperation", message="no", reason="Unauthorized")
    fake.fleet.next_error = denied
    handle = await fake.start(await create_nodeclaim(fake))
    await wait_until(lambda: is_blocked_by(handle, "Unauthorized"))
    assert fake.claims.condition_text("a", NEEDS_ATTENTION) == ""
    fake.fleet.next_error = denied
    await fake.sleep(seconds=11)
    await wait_until(lambda: has_attention_condition(fake, "True LaunchFailed"))
    verdict = verdict_of(await query_state(handle))
    assert verdict and verdict.code == "LaunchFailed" and "Unauthorized: UnauthorizedOperation: no" in verdict.sentence
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION), seconds=5)
    await wait_until(lambda: has_attention_condition(fake, ""))


@pytest.mark.parametrize(
    ("capacity", "ready", "calls", "reason"),
    [
        (0, "True", 1, "InsufficientCapacity"),
        (1000, "False", 0, "NodeClassNotReady"),
        (1000, "Unknown", 0, "LaunchTimeout"),
    ],
    ids=["no capacity", "rejected NodeClass", "NodeClass never Ready"],
)
async def test_impossible_launch_deletes_nodeclaim(
    fake: WorkerHarness, capacity: int, ready: str, calls: int, reason: str
) -> None:
    fake.fleet.capacity = capacity
    fake.node_classes.add("default", ready=ready)
    assert (await (await fake.start(await create_nodeclaim(fake))).result()).reason == reason
    assert len(fake.fleet.calls) == calls and fake.claims.found == {}
    assert ("InsufficientCapacityError" in fake.events.reasons_for("a")) is (capacity == 0)


async def test_single_launch_tries_other_offerings_at_once(fake: WorkerHarness) -> None:
    fake.fleet.types, fake.fleet.capacity_by_type = ("m5.large", "c5.large"), {"m5.large": 0}
    handle = await fake.start(await create_nodeclaim(fake))
    await wait_until_phase(handle, Phase.REGISTRATION)
    assert (await query_state(handle)).launched is not None
    assert fake.claims.found["a"]["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "c5.large"
    assert len(set(fake.fleet.calls)) == 2 and fake.fleet.excluded_types == [[], ["m5.large"]]


async def test_launch_waits_for_ready_nodeclass(fake: WorkerHarness) -> None:
    fake.node_classes.add("default", ready="Unknown")
    handle = await fake.start(await create_nodeclaim(fake))
    await wait_until(lambda: is_blocked_by(handle, "NodeClassNotReady"))
    fake.node_classes.add("default", ready="True")
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION), seconds=5)


async def test_launch_with_faults_is_overdue_and_keeps_retrying(fake: WorkerHarness) -> None:
    """It is unknown whether EC2 launched the instance, so the NodeClaim is kept until EC2 responds."""
    fake.fleet.faults["create"] = [TryLater("503") for _ in range(30)]
    handle = await fake.start(await create_nodeclaim(fake))
    await fake.sleep(minutes=1)
    await wait_until(lambda: is_blocked_by(handle, "LaunchFailed: 503"))
    await wait_until(lambda: has_attention_condition(fake, "True LaunchFailed"))
    await fake.sleep(minutes=4, seconds=30)
    state = await query_state(handle)
    assert state.phase is Phase.LAUNCH and state.overdue
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION), seconds=15)
    assert len(fake.instances.running) == 1
