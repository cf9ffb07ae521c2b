"""The NodeClaim workflow, phase by phase, on the time-skipping server with fake ports."""

from datetime import datetime, timedelta

import pytest

from tenure.apis import labels
from tenure.model.facts import Taint
from tenure.model.nodeclaim.node_identity import REGISTERED_GAP
from tenure.model.nodeclaim.requests import InstanceStatus
from tenure.model.nodeclaim.state import Phase
from tenure.model.provider_results import InstanceFacts
from tenure.policy.lifecycle.verdict import describe_blocker
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    count_completed_tasks,
    count_scheduled,
    has_state,
    is_blocked_by,
    non_task_event_types,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import (
    ALL_PHASES,
    BUSY,
    JOINED,
    create_nodeclaim,
    delete_nodeclaim,
    launched_nodeclaim,
    ready_nodeclaim,
    registered_nodeclaim,
)
from workflows.nodeclaim import NodeClaimWorkflow


async def test_standalone_nodeclaim_passes_all_phases(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    assert fake.claims.condition_text("a", "Initialized").startswith("True")
    assert "karpenter.sh/registered" in fake.nodes.found["node-a"].labels

    await delete_nodeclaim(fake, handle)
    outcome = await handle.result()

    assert [step.phase for step in outcome.history] == ALL_PHASES
    assert fake.instances.running == {} and len(fake.instances.terminated) == 1
    assert fake.claims.found == {} and fake.nodes.found == {}


async def test_workflow_without_faults_adds_at_most_80_events(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    own = await non_task_event_types(handle)
    assert len(own) <= 35, own
    assert await count_completed_tasks(handle) <= 18
    assert await count_scheduled(handle, "run_hook") == 0
    assert await count_scheduled(handle, "publish_interruption_events") == 0


async def test_node_that_never_registers_is_deleted_at_deadline(fake: WorkerHarness) -> None:
    claim = await create_nodeclaim(fake)
    handle = await fake.start(claim)
    outcome = await handle.result()
    assert outcome.reason == "RegistrationTimeout"
    assert lifetime(outcome.history[-1].at, claim.metadata.creation_timestamp) >= timedelta(minutes=15)
    assert "RegistrationTimeout" in fake.events.reasons_for("a")
    assert fake.instances.running == {} and fake.claims.found == {}


async def test_two_nodes_with_one_provider_id_block_registration(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    provider = fake.claims.found["a"]["status"]["providerID"]
    fake.nodes.join("node-b", provider)
    fake.nodes.join("node-c", provider)
    await fake.signal_observed(handle, node_name="node-b", node_count=2)
    await wait_until(lambda: is_blocked_by(handle, "MultipleNodesFound"))
    await wait_until(lambda: fake.claims.condition_text("a", "Registered") == "False MultipleNodesFound")
    del fake.nodes.found["node-c"]
    await fake.signal_observed(handle, node_name="node-b", node_count=1)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    assert (await query_state(handle)).node_name == "node-b"
    assert fake.claims.condition_text("a", "Registered") == "True"


async def test_node_missing_in_live_read_is_checked_with_backoff(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, **JOINED)
    await fake.sleep(minutes=13)
    assert await is_blocked_by(handle, "NodeNotJoined")
    assert 5 < await count_scheduled(handle, "register_node") < 25


async def test_node_missing_in_live_read_is_checked_again(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, **JOINED)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotJoined"))
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.sleep(seconds=6)
    await wait_until_phase(handle, Phase.INITIALIZATION)


async def test_nodeclaim_deleted_before_registration_terminates_instance(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, deleting=True)
    outcome = await handle.result()
    assert outcome.reason == "Deleted"
    assert fake.instances.running == {} and fake.claims.found == {}


async def test_startup_taints_block_initialization(fake: WorkerHarness) -> None:
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    handle = await registered_nodeclaim(fake, startupTaints=[taint])
    fake.nodes.update_node("node-a", ready=True, taints=(Taint(**taint),))
    waiting = "StartupTaintsExist: node.cilium.io/agent-not-ready:NoExecute"
    await fake.signal_observed(handle, **BUSY, waiting_for=[waiting])
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "StartupTaintsExist"), seconds=5)
    await wait_until(lambda: fake.claims.condition_text("a", "Initialized") == "Unknown StartupTaintsExist")
    fake.nodes.update_node("node-a", taints=())
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)


async def test_taint_in_live_read_waits_for_next_observation(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    not_ready = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
    fake.nodes.update_node("node-a", ready=True, taints=(not_ready,))
    await fake.signal_observed(handle, **BUSY)
    await wait_until(lambda: is_blocked_by(handle, "KnownEphemeralTaintsExist"))
    fake.nodes.update_node("node-a", taints=())
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)


async def test_node_that_never_initializes_is_overdue_and_kept(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    await fake.sleep(minutes=31)
    state = await query_state(handle)
    assert state.overdue and state.phase is Phase.INITIALIZATION
    assert "InitializationOverdue" in fake.events.reasons_for("a")
    assert fake.instances.terminated == []
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    assert not (await query_state(handle)).overdue


async def test_rebooted_node_is_initialized_again(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.update_node("node-a", boot_id="boot-2")
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2"})
    await wait_until(lambda: has_state(handle, reboots=1))
    await wait_until_phase(handle, Phase.READY)
    assert (await query_state(handle)).boot_id == "boot-2"


async def test_not_ready_node_is_kept(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle, **{**BUSY, "node_ready": False})
    await fake.sleep(hours=1)
    assert (await query_state(handle)).phase is Phase.READY
    assert len(fake.fleet.calls) == 1


async def test_stopped_instance_of_a_not_ready_node_is_reported_until_it_is_ready(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    stop_instances(fake, "Client.UserInitiatedShutdown")
    await fake.signal_observed(handle, **{**BUSY, "node_ready": False})
    await fake.sleep(seconds=6)
    await wait_until(lambda: fake.claims.condition_text("a", labels.NEEDS_ATTENTION) == "True InstanceStopped")
    await wait_until(lambda: "NeedsAttention" in fake.events.reasons_for("node-a"))
    assert "its instance is stopped (Client.UserInitiatedShutdown)" in describe_blocker(await query_state(handle))
    await fake.signal_observed(handle, **BUSY)
    await wait_until(lambda: has_state(handle, blocked_by="", instance_status=InstanceStatus()))
    await wait_until(lambda: fake.claims.condition_text("a", labels.NEEDS_ATTENTION) == "")


async def test_missing_node_without_instance_is_deleted(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.instances.running.clear()
    await fake.nodes.release("node-a", "uid-node-a")
    await fake.signal_observed(handle)
    outcome = await handle.result()
    assert outcome.reason == "GarbageCollected"
    assert fake.claims.found == {}


async def test_missing_node_with_running_instance_is_awaited(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    await wait_until(lambda: fake.claims.condition_text("a", labels.NODE_MISSING) == "True NodeNotFound")
    await fake.sleep(minutes=14)
    await fake.signal_observed(handle, **BUSY)
    await wait_until(lambda: has_state(handle, blocked_by=""))
    assert (await query_state(handle)).phase is Phase.READY
    await wait_until(lambda: fake.claims.condition_text("a", labels.NODE_MISSING) == "")
    await fake.sleep(hours=1)
    assert (await query_state(handle)).phase is Phase.READY


async def test_node_that_its_kubelet_created_again_is_registered_and_initialized(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    before = await query_state(handle)
    fake.nodes.join("node-a", before.launched.provider_id if before.launched else "")
    await fake.signal_observed(handle, **{**BUSY, "registration_gaps": (REGISTERED_GAP,)})
    await wait_until(lambda: has_event(fake, "RegistrationRestored"))
    assert fake.nodes.found["node-a"].labels[labels.REGISTERED] == "true"
    assert fake.nodes.found["node-a"].taints == ()
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    phases = [step.phase for step in (await query_state(handle)).history]
    assert phases[-3:] == [Phase.READY, Phase.INITIALIZATION, Phase.READY]


async def test_removed_finalizer_is_restored_once_by_observation(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle, **{**BUSY, "registration_gaps": ("finalizer karpenter.sh/termination",)})
    await wait_until(lambda: has_event(fake, "RegistrationRestored"))
    await fake.sleep(minutes=5)
    assert (await query_state(handle)).phase is Phase.READY
    assert await count_scheduled(handle, "register_node") == 2


def stop_instances(fake: WorkerHarness, reason: str) -> None:
    for instance_id, found in fake.instances.running.items():
        fake.instances.running[instance_id] = found.model_copy(update={"state": "stopped", "state_reason": reason})


async def has_event(fake: WorkerHarness, reason: str) -> bool:
    return reason in fake.events.reasons_for("a")


async def test_nodeclaim_is_deleted_when_its_node_is_missing_for_too_long(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.found.clear()
    await fake.signal_observed(handle)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    await fake.sleep(minutes=14)
    assert (await query_state(handle)).phase is Phase.READY
    await fake.sleep(minutes=2)
    outcome = await handle.result()
    assert outcome.reason == "NodeNotFound" and fake.claims.found == {} and fake.instances.running == {}


async def test_node_that_returned_while_nothing_watched_is_not_missing(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    node = fake.nodes.found.pop("node-a")
    await fake.signal_observed(handle)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    fake.nodes.found["node-a"] = node
    await fake.sleep(minutes=30)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.disruption == "" and fake.instances.terminated == []
    await fake.signal_observed(handle, **BUSY)
    await wait_until(lambda: has_state(handle, blocked_by="", node_missing_since=None))


async def test_nodeclaim_is_deleted_at_once_when_its_node_is_missing_and_its_instance_is_stopped(
    fake: WorkerHarness,
) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.found.clear()
    reason = "Client.UserInitiatedShutdown: User initiated shutdown"
    stop_instances(fake, reason)
    await fake.signal_observed(handle)
    await wait_until(lambda: has_state(handle, disruption="NodeNotFound"))
    await handle.result()
    (message,) = fake.events.messages("NodeNotFound")
    assert message == f"Node node-a no longer exists; EC2: its instance is stopped ({reason})"


async def test_policy_keeps_a_nodeclaim_without_node(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.found.clear()
    await fake.signal_observed(handle, rules={"nodeMissing": {"deadline": "1m", "whenOverdue": "alarm"}})
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    await fake.sleep(hours=1)
    assert (await query_state(handle)).phase is Phase.READY
    await fake.signal_observed(handle, rules={"nodeMissing": {"deadline": "1m"}})
    assert (await handle.result()).reason == "NodeNotFound"


async def test_node_returning_during_instance_check_is_observed_at_once(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, get = await ready_nodeclaim(fake), fake.instances.get

    async def observe_and_get(instance_id: str) -> InstanceFacts | None:
        await fake.signal_observed(handle, **BUSY)
        return await get(instance_id)

    monkeypatch.setattr(fake.instances, "get", observe_and_get)
    await fake.signal_observed(handle)
    await wait_until(lambda: has_state(handle, blocked_by="", instance_status=InstanceStatus(state="running")))


async def test_older_and_repeated_observations_are_ignored(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    newest = fake.make_observation(**BUSY)
    stale = newest.model_copy(update={"number": 1, "deleting": True, "exists": False})
    for observed in (newest, stale, newest, stale):
        await handle.signal(NodeClaimWorkflow.observe, observed)
    await fake.sleep(minutes=1)
    state = await query_state(handle)
    assert state.phase is Phase.READY and not state.observed.deleting


def lifetime(end: datetime, created_at: datetime | None) -> timedelta:
    assert created_at is not None
    return end - created_at
