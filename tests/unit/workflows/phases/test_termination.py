"""Drain and termination: blockers are reported, faults are retried, and nothing is left behind."""

from tenure.model.errors import BadInput, Forbidden, Throttled, TryLater
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    has_scheduled,
    is_blocked_by,
    is_in_phase,
    is_overdue,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, launched_nodeclaim, ready_nodeclaim
from workflows.nodeclaim import NodeClaimWorkflow


async def test_pod_disruption_budget_blocks_drain_and_is_reported(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web: 0 disruptions allowed"
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "PodDisruptionBudget web"))
    assert fake.instances.terminated == [] and fake.pods.evicted == []
    fake.pods.blocked.clear()
    await handle.result()
    assert fake.pods.evicted == ["web"]


async def test_expired_termination_grace_period_deletes_remaining_pods(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, terminationGracePeriod="1m")
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web: 0 disruptions allowed"
    await delete_nodeclaim(fake, handle)
    await handle.result()
    assert [name for name, _ in fake.pods.forced] == ["web"]
    assert "TerminationGracePeriodExpiring" in fake.events.reasons_for("a")
    assert len(fake.instances.terminated) == 1


async def test_attached_volume_does_not_outlast_termination_grace_period(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, terminationGracePeriod="1m")
    fake.pods.attach()
    await delete_nodeclaim(fake, handle)
    await handle.result()
    assert len(fake.instances.terminated) == 1


async def test_failing_drain_is_overdue_after_deadline_and_retried(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.faults["on_node"] = [TryLater("503") for _ in range(450)]
    await delete_nodeclaim(fake, handle)
    await wait_until_phase(handle, Phase.DRAIN)
    await fake.sleep(minutes=61)
    await wait_until(lambda: is_overdue(handle))
    assert await is_in_phase(handle, Phase.DRAIN)
    assert fake.instances.terminated == []
    await handle.result()
    assert fake.pods.evicted == ["web"]


async def test_termination_is_retried_until_success(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.instances.faults["terminate"] = [Throttled("slow down"), Forbidden("ec2:TerminateInstances"), TryLater("503")]
    await delete_nodeclaim(fake, handle)
    await handle.result()
    assert len(fake.instances.terminated) == 1 and fake.claims.found == {}


async def test_failing_termination_is_overdue_after_deadline(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.instances.faults["terminate"] = [Forbidden("ec2:TerminateInstances is denied") for _ in range(500)]
    await delete_nodeclaim(fake, handle)
    await wait_until_phase(handle, Phase.TERMINATION)
    await fake.sleep(minutes=14)
    assert not await is_overdue(handle)
    await wait_until_skipping_time(fake, lambda: is_overdue(handle), seconds=5)
    fake.instances.faults.clear()
    await handle.result()
    assert len(fake.instances.terminated) == 1


async def test_terminal_fault_is_reported_and_retried(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.faults["release"] = [BadInput("metadata.finalizers: Invalid value")]
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "metadata.finalizers"))
    await handle.result()
    assert fake.nodes.found == {} and fake.claims.found == {}


async def test_terminal_fault_in_any_phase_does_not_fail_workflow(fake: WorkerHarness) -> None:
    for port, method in (("nodes", "register"), ("nodes", "mark_initialized"), ("nodes", "mark_disrupted")):
        getattr(fake, port).faults[method] = [BadInput("no")]
    handle = await launched_nodeclaim(fake)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.signal_observed(handle, **BUSY)
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.READY), seconds=10)
    await delete_nodeclaim(fake, handle)
    outcome = await handle.result()
    assert outcome.reason == "Deleted" and len(fake.instances.terminated) == 1


async def test_instance_of_force_removed_nodeclaim_is_terminated(fake: WorkerHarness) -> None:
    """The finalizer was removed by hand: the NodeClaim is gone, but its instance still runs."""
    handle = await ready_nodeclaim(fake)
    fake.claims.found.clear()
    await fake.signal_observed(handle, **BUSY, exists=False)
    await handle.result()
    assert fake.instances.running == {} and fake.nodes.found == {}


async def test_manually_deleted_node_terminates_nodeclaim(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.nodes.delete("node-a", "uid-node-a")
    await fake.signal_observed(handle, **BUSY, deleting=True)
    await handle.result()
    assert fake.claims.found == {} and len(fake.instances.terminated) == 1


async def test_repeated_deletion_signal_terminates_instance_once(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await fake.claims.delete("a", "uid-a")
    for _ in range(3):
        await fake.signal_observed(handle, **BUSY, deleting=True)
    await fake.signal_observed(handle, exists=False)
    fake.pods.blocked.clear()
    await handle.result()
    assert len(fake.instances.terminated) == 1


async def test_check_started_by_signal_completes_before_workflow(fake: WorkerHarness) -> None:
    """The signal may arrive with the last activity result, when the NodeClaim is already gone."""
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web: 0 disruptions allowed"
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "PodDisruptionBudget web"))
    fake.claims.faults["get"] = [TryLater("503") for _ in range(5)]
    await handle.signal(NodeClaimWorkflow.observe, fake.make_observation(exists=False))
    await wait_until(lambda: has_scheduled(handle, "nodeclaim_exists"))
    fake.pods.blocked.clear()
    await handle.result()
    events = (await handle.fetch_history()).events
    ended = {one.activity_task_completed_event_attributes.scheduled_event_id for one in events}
    scheduled = {one.event_id for one in events if one.HasField("activity_task_scheduled_event_attributes")}
    assert scheduled <= ended
