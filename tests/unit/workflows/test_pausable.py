"""Pauses are written to annotations and read from them, end at their time, and cancel running work."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError

from tenure.apis.labels import PAUSE
from tenure.model.disruption.commands import DisruptionState
from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import ObservedNodePool
from tenure.model.operator_requests import ObservedPause
from tenure.model.signals import OperatorRequestResult, Pause, PermitRelease, PermitRequest, Resume
from tenure.model.workflow_states import NodePoolState
from tenure.policy.lifecycle.pauses import NEVER, normalize_pause, write_pause
from tests.support.fakes.permit_requester import PermitRequesterWorkflow
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    has_scheduled,
    is_blocked_by,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    delete_nodeclaim,
    is_in_service,
    observe_empty,
    pause_for,
    ready_nodeclaim,
    start_nodepool,
)
from tests.unit.workflows.continue_as_new import wait_until_continued_as_new
from tests.unit.workflows.phases.test_drain import PDB, add_blocked_pod, drain_rules
from tests.unit.workflows.test_nodepool import (
    Asker,
    add_nodeclaims,
    has_decision_count,
    have_permits,
    have_rejections,
    request_permits,
)
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow


async def pool_state(handle: Any) -> NodePoolState:
    state: NodePoolState = await handle.query(NodePoolWorkflow.state)
    return state


async def signal_observed(handle: Any, number: int, **fields: Any) -> None:
    await handle.signal(NodePoolWorkflow.observe, ObservedNodePool(number=number, generation=1, **fields))


def nodepool_pause_annotation(fake: WorkerHarness) -> str:
    return fake.pools.found["default"].metadata.annotations.get(PAUSE, "")


def nodeclaim_pause_annotation(fake: WorkerHarness) -> str:
    return str(fake.claims.found["a"]["metadata"]["annotations"].get(PAUSE, ""))


async def nodepool_pause_is(fake: WorkerHarness, text: str) -> bool:
    return nodepool_pause_annotation(fake) == text


async def has_disruption_events(fake: WorkerHarness, name: str, *reasons: str) -> bool:
    return [one for one in fake.events.reasons_for(name) if one.startswith("Disruption")] == list(reasons)


async def revocation_reasons(fake: WorkerHarness, name: str) -> list[str]:
    handle: Asker = fake.client.get_workflow_handle_for(PermitRequesterWorkflow.run, name)
    return [one.why for one in await handle.query(PermitRequesterWorkflow.revocations)]


async def pause_text(fake: WorkerHarness, **duration: float) -> str:
    return write_pause(normalize_pause(await pause_for(fake, **duration)))


async def test_pause_is_written_to_nodepool_and_removed_at_its_end(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    pause = await pause_for(fake, hours=1)
    result = await pools.execute_update(NodePoolWorkflow.pause, pause)
    assert result.accepted and "NodePool default is paused until" in result.message
    await wait_until(lambda: nodepool_pause_is(fake, write_pause(normalize_pause(pause))))
    await wait_until(lambda: has_disruption_events(fake, "default", "DisruptionPaused"))
    await fake.sleep(minutes=59)
    assert (await pool_state(pools)).pause == normalize_pause(pause) and nodepool_pause_annotation(fake)
    await fake.sleep(minutes=2)
    await wait_until(lambda: nodepool_pause_is(fake, ""))
    assert (await pool_state(pools)).pause is None
    await wait_until(lambda: has_disruption_events(fake, "default", "DisruptionPaused", "DisruptionResumed"))
    assert "the pause by ops@example.com ended at" in fake.events.published[-1][2]


async def test_annotation_pauses_nodepool_until_removed(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await signal_observed(pools, 2, pause=await pause_text(fake, hours=1))
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    await wait_until(lambda: has_disruption_events(fake, "default", "DisruptionPaused"))
    assert nodepool_pause_annotation(fake) == ""  # A person wrote it: there is nothing to write.
    await signal_observed(pools, 3)
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await wait_until(lambda: has_disruption_events(fake, "default", "DisruptionPaused", "DisruptionResumed"))


async def test_invalid_pause_annotation_holds_until_resume(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    await fake.pools.patch_annotations("default", {PAUSE: "until tomorrow"})
    await signal_observed(pools, 2, pause="until tomorrow")
    await wait_until(lambda: has_disruption_events(fake, "default", "DisruptionPaused"))
    assert "'until tomorrow' has no reason, expected it last" in fake.events.published[-1][2]
    await fake.sleep(days=30)
    assert (await pool_state(pools)).pause and nodepool_pause_annotation(fake) == "until tomorrow"
    await pools.execute_update(NodePoolWorkflow.resume, Resume())
    await wait_until(lambda: nodepool_pause_is(fake, ""))
    assert (await pool_state(pools)).pause is None


async def test_late_observation_of_own_annotation_changes_nothing(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    first, second = await pause_for(fake, hours=1), await pause_for(fake, hours=2)
    for pause in (first, second):
        await pools.execute_update(NodePoolWorkflow.pause, pause)
        await wait_until(partial(nodepool_pause_is, fake, write_pause(normalize_pause(pause))))
    await signal_observed(pools, 2, pause=write_pause(normalize_pause(first)), usage="late")
    assert (await pool_state(pools)).pause == normalize_pause(second)
    await signal_observed(pools, 3, pause=write_pause(normalize_pause(second)))
    assert (await pool_state(pools)).pause == normalize_pause(second)
    await pools.execute_update(NodePoolWorkflow.resume, Resume())
    await wait_until(lambda: nodepool_pause_is(fake, ""))
    await signal_observed(pools, 4, pause=write_pause(normalize_pause(second)), usage="later")
    assert (await pool_state(pools)).pause is None
    await signal_observed(pools, 5)
    assert (await pool_state(pools)).pause is None
    by_hand = await pause_text(fake, hours=3)
    await signal_observed(pools, 6, pause=by_hand)
    paused = (await pool_state(pools)).pause
    assert paused is not None and write_pause(paused) == by_hand


async def test_pause_extended_by_annotation_is_kept_at_its_end(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    await pools.execute_update(NodePoolWorkflow.pause, await pause_for(fake, minutes=10))
    await wait_until(lambda: has_disruption_events(fake, "default", "DisruptionPaused"))
    longer = await pause_text(fake, hours=5)
    await fake.pools.patch_annotations("default", {PAUSE: longer})
    await fake.sleep(minutes=11)
    await wait_until(lambda: has_disruption_events(fake, "default", "DisruptionPaused", "DisruptionResumed"))
    assert nodepool_pause_annotation(fake) == longer
    await signal_observed(pools, 2, pause=longer)
    assert (await pool_state(pools)).pause is not None


async def test_failed_annotation_removal_is_retried_without_observation(fake: WorkerHarness) -> None:
    """Another process may take over the watch, so that no observation shows the annotation."""
    pools = await start_nodepool(fake)
    pause = await pause_for(fake, hours=1)
    await pools.signal(NodePoolWorkflow.pause_disruption, pause)
    await wait_until(lambda: nodepool_pause_is(fake, write_pause(normalize_pause(pause))))
    fake.pools.faults["patch_annotations"] = [BadInput("denied by a webhook")]
    await pools.signal(NodePoolWorkflow.resume_disruption, Resume())
    await wait_until(lambda: has_failed_activity(pools))
    assert not await nodepool_pause_is(fake, "")
    await wait_until_skipping_time(fake, lambda: nodepool_pause_is(fake, ""), seconds=20)
    await wait_until(lambda: has_disruption_events(fake, "default", "DisruptionPaused", "DisruptionResumed"))
    assert (await pool_state(pools)).pause is None


async def test_failed_annotation_write_is_retried(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    pause = await pause_for(fake, hours=1)
    fake.pools.faults["patch_annotations"] = [BadInput("denied by a webhook")]
    await pools.signal(NodePoolWorkflow.pause_disruption, pause)
    await wait_until_skipping_time(
        fake, lambda: nodepool_pause_is(fake, write_pause(normalize_pause(pause))), seconds=20
    )


async def has_failed_activity(handle: Any) -> bool:
    events = (await handle.fetch_history()).events
    return any(one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED for one in events)


async def test_pause_is_written_at_once_after_a_failed_resume(fake: WorkerHarness) -> None:
    handle = await start_nodepool(fake)
    await handle.execute_update(NodePoolWorkflow.pause, await pause_for(fake, hours=1))
    await wait_until(lambda: bool(nodepool_pause_annotation(fake)))
    fake.pools.faults["patch_annotations"] = [BadInput("denied by a webhook")]
    await handle.execute_update(NodePoolWorkflow.resume, Resume(by="ops"))
    await wait_until(lambda: not fake.pools.faults["patch_annotations"])
    other, began = normalize_pause(await pause_for(fake, hours=2)), await fake.now()
    await handle.execute_update(NodePoolWorkflow.pause, other)
    await wait_until(lambda: nodepool_pause_is(fake, write_pause(other)))
    assert await fake.now() - began < timedelta(seconds=30)


async def test_pause_revokes_permits_until_its_end(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await pools.signal(NodePoolWorkflow.pause_disruption, await pause_for(fake, hours=1))
    await wait_until(lambda: has_revocation(fake, "a"))
    assert "NodePool default is paused by ops@example.com" in (await revocation_reasons(fake, "a"))[0]
    assert await revocation_reasons(fake, "b") == [] and (await pool_state(pools)).permits == ()
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    await fake.sleep(hours=1)
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b", "a"), seconds=10)


async def has_revocation(fake: WorkerHarness, name: str) -> bool:
    return bool(await revocation_reasons(fake, name))


async def test_cluster_pause_annotation_pauses_every_nodepool(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "2"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await signal_observed(pools, 2, cluster_pause=await pause_text(fake, minutes=10))
    await wait_until(lambda: has_revocation(fake, "a"))
    await request_permits(fake, pools, "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    assert nodepool_pause_annotation(fake) == "" and (await pool_state(pools)).pause is None
    await fake.sleep(minutes=8)
    assert not await have_permits(fake, "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"), seconds=10)


async def test_repeated_request_renews_permit_of_holder(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    await fake.client.start_workflow(PermitRequesterWorkflow.run, id="command", task_queue=ids.task_queue(fake.cluster))
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    now = await fake.now()
    request = PermitRequest(claim_name="a", claim_uid="uid-a", workflow_id="command", reason="Drifted", since=now)
    await pools.signal(NodePoolWorkflow.request_permit, request)
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "command"))
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    for _ in range(3):
        await fake.sleep(seconds=90)
        await pools.signal(NodePoolWorkflow.request_permit, request)
    await wait_until(lambda: has_decision_count(fake, "command", 4))
    state = await pool_state(pools)
    assert [one.workflow_id for one in state.permits] == ["command"] and len(state.pending_requests) == 1
    asker: Asker = fake.client.get_workflow_handle_for(PermitRequesterWorkflow.run, "command")
    decisions = await asker.query(PermitRequesterWorkflow.decisions)
    assert [one.granted for one in decisions] == [True] * 4 and {one.claim_uid for one in decisions} == {"uid-a"}
    assert not await have_permits(fake, "a")
    await pools.signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid="uid-a", workflow_id="command"))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))


async def test_rate_counts_deleted_nodes(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "100%"}])
    await signal_observed(pools, 2, rules={"rates": [{"nodes": "1", "within": "1h"}]})
    await request_permits(fake, pools, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    fake.claims.set_status("a", deleting=True)
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    del fake.claims.found["a"]
    await fake.sleep(minutes=5)
    assert len((await pool_state(pools)).past) == 1


async def test_node_pause_is_written_to_nodeclaim_and_revokes_permits(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake)
    fake.nodes.update_node("node-a", annotations={PAUSE: "an older one"})
    pause = await pause_for(fake, hours=3)
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    await wait_until(lambda: has_disruption_events(fake, "a", "DisruptionPaused"))
    assert (
        nodeclaim_pause_annotation(fake) == write_pause(normalize_pause(pause))
        and PAUSE not in fake.nodes.found["node-a"].annotations
    )
    now = await fake.now()
    await fake.client.start_workflow(PermitRequesterWorkflow.run, id="command", task_queue=ids.task_queue(fake.cluster))
    request = PermitRequest(claim_name="a", claim_uid="uid-a", workflow_id="command", reason="Drifted", since=now)
    fake.claims.set_status("a", Initialized="True")
    await pools.signal(NodePoolWorkflow.request_permit, request)
    await handle.execute_update(NodeClaimWorkflow.resume, Resume())
    await wait_until(lambda: has_disruption_events(fake, "a", "DisruptionPaused", "DisruptionResumed"))
    assert nodeclaim_pause_annotation(fake) == ""
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "command"))
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    await wait_until(lambda: has_revocation(fake, "command"))


async def test_nodeclaim_annotation_pauses_node(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    now = await fake.now()
    text = await pause_text(fake, hours=1)
    await fake.signal_observed(handle, **BUSY, empty=True, empty_since=now, consolidation="WhenEmpty/30s", pause=text)
    await fake.sleep(minutes=50)
    assert await is_blocked_by(handle, "the node is paused by ops@example.com until")
    assert (await handle.result()).history[-1].at >= now + timedelta(hours=1)


@pytest.mark.parametrize("pauses_nodepool", [False, True], ids=["node pause", "NodePool pause"])
async def test_pause_cancels_voluntary_drain_and_resume_restarts_it(fake: WorkerHarness, pauses_nodepool: bool) -> None:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake)
    add_blocked_pod(fake, reschedulable=False)
    await observe_empty(fake, handle, "WhenEmpty/0s", **drain_rules(whenBlocked="giveUp", blockedFor="9h"))
    await wait_until(lambda: is_blocked_by(handle, PDB))
    assert not is_in_service(fake)
    paused: Any = pools if pauses_nodepool else handle
    await paused.signal("pause_disruption", await pause_for(fake, hours=1))
    await wait_until_phase(handle, Phase.READY)
    assert is_in_service(fake) and "DrainGivenUp" in fake.events.reasons_for("a")
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "is paused by ops@example.com"))
    fake.pods.blocked.clear()
    await paused.signal("resume_disruption", Resume())
    assert (await handle.result()).reason == "Empty"


async def test_retried_deletion_stops_during_pause(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake)
    fake.claims.faults["delete"] = [TryLater("etcd is slow")] * 1000
    await observe_empty(fake, handle, consolidation="WhenEmpty/0s")
    await wait_until(lambda: has_scheduled(handle, "disrupt_nodeclaim"))
    await pools.signal(NodePoolWorkflow.pause_disruption, await pause_for(fake, hours=1))
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "NodePool default is paused by ops@example.com"))
    fake.claims.faults.clear()
    await fake.sleep(minutes=50)
    assert (await query_state(handle)).phase is Phase.READY and is_in_service(fake)
    assert (await handle.result()).reason == "Empty"


async def test_pause_response_names_drain_that_cannot_be_cancelled(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    add_blocked_pod(fake)
    await delete_nodeclaim(fake, handle)
    await wait_until_phase(handle, Phase.DRAIN)
    result = await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(fake, hours=1))
    assert "is being deleted, which cannot be undone" in result.message
    fake.pods.blocked.clear()
    assert (await handle.result()).reason == "Deleted"


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"by": ""}, "by: '': invalid name"), ({"reason": " "}, "reason: ' ' of 1 characters, expected 1 to 300")],
)
async def test_pause_update_without_requester_or_reason_is_rejected(
    fake: WorkerHarness, changes: dict[str, str], named: str
) -> None:
    pools = await start_nodepool(fake)
    pause = (await pause_for(fake, hours=1)).model_copy(update=changes)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await pools.execute_update(NodePoolWorkflow.pause, pause)
    assert named in str(error.value.__cause__) and (await pool_state(pools)).pause is None


async def test_pause_signal_without_requester_or_reason_is_accepted(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    pause = Pause(by="", reason="", until=await fake.now() + timedelta(hours=1))
    await pools.signal(NodePoolWorkflow.pause_disruption, pause)
    paused = (await pool_state(pools)).pause
    assert paused is not None and (paused.by, paused.reason) == ("somebody", "no reason given")
    assert paused.until != NEVER


async def test_cluster_pause_is_written_to_worker_namespace_and_read_from_it(fake: WorkerHarness) -> None:
    cluster = await fake.client.start_workflow(
        ClusterWorkflow.run,
        DisruptionState(cluster=fake.cluster),
        id=ids.cluster(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )
    pause = await pause_for(fake, hours=1)
    result = await cluster.execute_update("pause", pause, result_type=OperatorRequestResult)
    assert result.message.startswith("the cluster is paused until")
    text = write_pause(normalize_pause(pause))
    await wait_until(lambda: fake.namespaces.found["tenure"] == {PAUSE: text})
    await cluster.signal("observe_pause", ObservedPause(number=1, text=text))
    await cluster.signal("observe_pause", ObservedPause(number=2))
    await wait_until(lambda: has_disruption_events(fake, "tenure", "DisruptionPaused", "DisruptionResumed"))
    longer = await pause_text(fake, hours=2)
    await cluster.signal("observe_pause", ObservedPause(number=3, text=longer))
    await cluster.signal("observe_pause", ObservedPause(number=2))
    state: DisruptionState = await cluster.query("state", result_type=DisruptionState)
    assert state.pause is not None and write_pause(state.pause) == longer
    await cluster.terminate()


async def test_nodepool_continues_as_new_although_pause_cannot_be_written(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = await start_nodepool(fake)
    fake.pools.faults["patch_annotations"] = [TryLater("503") for _ in range(1000)]
    await pools.signal(NodePoolWorkflow.pause_disruption, await pause_for(fake, hours=1))
    monkeypatch.setattr("workflows.timers.STOP_TIMEOUT", timedelta(milliseconds=200))
    await wait_until_continued_as_new(pools, monkeypatch, lambda number: signal_observed(pools, number + 2, usage="x"))
    assert (await pool_state(pools)).pause and not nodepool_pause_annotation(fake)
    fake.pools.faults.clear()
    await wait_until(lambda: bool(nodepool_pause_annotation(fake)))
