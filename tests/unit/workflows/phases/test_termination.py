"""Drain and termination: what holds them up is named, what fails is tried again, nothing is left behind."""

from tenure.model.errors import BadInput, Forbidden, Throttled, TryLater
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    is_blocked_by,
    is_in_phase,
    is_overdue,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, launched_nodeclaim, ready_nodeclaim
from workflows.nodeclaim import NodeClaimWorkflow


async def test_a_pod_disruption_budget_holds_the_drain_and_is_named(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web: 0 disruptions allowed"
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "PodDisruptionBudget web"))
    assert fake.instances.terminated == [] and fake.pods.evicted == []
    fake.pods.blocked.clear()
    await handle.result()
    assert fake.pods.evicted == ["web"]


async def test_the_end_of_the_termination_grace_period_forces_what_is_left(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, terminationGracePeriod="1m")
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web: 0 disruptions allowed"
    await delete_nodeclaim(fake, handle)
    await handle.result()
    assert [name for name, _ in fake.pods.forced] == ["web"]
    assert "TerminationGracePeriodExpiring" in fake.events.reasons_for("a")
    assert len(fake.instances.terminated) == 1


async def test_a_volume_that_never_detaches_does_not_outlast_the_grace_period(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, terminationGracePeriod="1m")
    fake.pods.volumes = ["csi-1"]
    await delete_nodeclaim(fake, handle)
    await handle.result()
    assert len(fake.instances.terminated) == 1


async def test_a_drain_that_fails_beyond_its_deadline_is_overdue_and_goes_on(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.faults["on_node"] = [TryLater("503") for _ in range(450)]
    await delete_nodeclaim(fake, handle)
    await wait_until_phase(handle, Phase.DRAIN)
    await fake.sleep(minutes=61)
    state = await query_state(handle)
    assert state.phase is Phase.DRAIN and state.overdue
    assert fake.instances.terminated == []
    await handle.result()
    assert fake.pods.evicted == ["web"]


async def test_termination_is_tried_until_aws_lets_it(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.instances.faults["terminate"] = [Throttled("slow down"), Forbidden("ec2:TerminateInstances"), TryLater("503")]
    await delete_nodeclaim(fake, handle)
    await handle.result()
    assert len(fake.instances.terminated) == 1 and fake.claims.found == {}


async def test_a_termination_that_drags_on_is_overdue_in_the_sight_of_all(fake: WorkerHarness) -> None:
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


async def test_a_fault_that_no_retry_helps_is_shown_and_tried_again_all_the_same(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.faults["release"] = [BadInput("metadata.finalizers: Invalid value")]
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "metadata.finalizers"))
    await handle.result()
    assert fake.nodes.found == {} and fake.claims.found == {}


async def test_a_fault_that_no_retry_helps_ends_no_life_in_any_phase(fake: WorkerHarness) -> None:
    for port, method in (("nodes", "register"), ("nodes", "mark_initialized"), ("nodes", "mark_disrupted")):
        getattr(fake, port).faults[method] = [BadInput("no")]
    handle = await launched_nodeclaim(fake)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.signal_observed(handle, **BUSY)
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.READY), seconds=10)
    await delete_nodeclaim(fake, handle)
    outcome = await handle.result()
    assert outcome.reason == "Deleted" and len(fake.instances.terminated) == 1


async def test_a_claim_taken_off_by_force_still_ends_its_instance(fake: WorkerHarness) -> None:
    """Somebody removed the finalizer by hand: the NodeClaim is gone and its instance is not."""
    handle = await ready_nodeclaim(fake)
    fake.claims.found.clear()
    await fake.signal_observed(handle, **BUSY, exists=False)
    await handle.result()
    assert fake.instances.running == {} and fake.nodes.found == {}


async def test_a_node_deleted_by_hand_takes_its_claim_along(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.nodes.delete("node-a")
    await fake.signal_observed(handle, **BUSY, deleting=True)
    await handle.result()
    assert fake.claims.found == {} and len(fake.instances.terminated) == 1


async def test_repeated_word_of_a_deletion_ends_one_instance_once(fake: WorkerHarness) -> None:
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


async def test_a_check_that_a_signal_started_ends_before_the_workflow(fake: WorkerHarness) -> None:
    """The signal may come with the last activity's result, as the NodeClaim is gone by then."""
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


async def has_scheduled(handle: Handle, activity: str) -> bool:
    return await count_scheduled(handle, activity) > 0
