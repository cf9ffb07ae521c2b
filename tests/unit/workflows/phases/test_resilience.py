"""Long faults and stale observations: the workflow verifies live state and continues as new."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

import workflows.activity_options
from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim.node_identity import REGISTERED_GAP
from tenure.model.nodeclaim.state import Phase
from tenure.model.provider_results import DrainPod
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    has_continued_as_new,
    has_scheduled,
    is_running,
    latest_run,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.interruption_messages import interruption_rules, send_message
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    JOINED,
    delete_nodeclaim,
    launched_nodeclaim,
    observe_empty,
    pause_for,
    ready_nodeclaim,
    registered_nodeclaim,
    start_nodepool,
)
from workflows.nodepool import NodePoolWorkflow


@pytest.mark.parametrize("initial_phase", ["launched", "ready"])
async def test_observed_nodeclaim_removal_is_verified(fake: WorkerHarness, initial_phase: str) -> None:
    handle = await (ready_nodeclaim if initial_phase == "ready" else launched_nodeclaim)(fake)
    phase = (await query_state(handle)).phase
    await fake.signal_observed(handle, exists=False)
    await fake.sleep(minutes=1)
    assert (await query_state(handle)).phase is phase
    assert fake.instances.terminated == [] and not fake.claims.found["a"]["metadata"].get("deletionTimestamp")
    assert await count_scheduled(handle, "nodeclaim_exists") == 1


async def test_failing_termination_continues_as_new(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 80)
    handle = await ready_nodeclaim(fake)
    fake.instances.faults["terminate"] = [BadInput("OperationNotPermitted") for _ in range(40)]
    await delete_nodeclaim(fake, handle)
    await wait_until_skipping_time(fake, lambda: has_continued_as_new(fake.client, handle), seconds=30)
    latest = latest_run(fake.client, handle)
    await wait_until_phase(latest, Phase.TERMINATION)
    fake.instances.faults.clear()
    await fake.sleep(seconds=30)
    await latest.result()
    assert len(fake.instances.terminated) == 1


async def test_unobserved_readiness_is_found_by_live_check(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    await fake.sleep(seconds=1)
    fake.nodes.update_node("node-a", ready=True)
    await fake.sleep(minutes=1)
    await wait_until_phase(handle, Phase.READY)


async def test_not_ready_node_without_instance_is_deleted(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.instances.running.clear()
    fake.nodes.update_node("node-a", ready=False)
    await fake.signal_observed(handle, **{**BUSY, "node_ready": False})
    outcome = await handle.result()
    assert outcome.reason == "GarbageCollected" and fake.claims.found == {} and fake.nodes.found == {}


async def test_node_that_becomes_not_ready_during_its_initialization_is_newly_unready(fake: WorkerHarness) -> None:
    """The observation may arrive before the phase Ready begins, which checks the instance."""
    handle = await registered_nodeclaim(fake)
    await fake.signal_observed(handle, **{**BUSY, "node_ready": False})
    state = await query_state(handle)
    assert state.phase is Phase.INITIALIZATION and state.is_newly_unready
    await fake.signal_observed(handle, **BUSY)
    assert not (await query_state(handle)).is_newly_unready


async def test_instance_of_not_ready_node_is_checked_with_backoff(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle, **{**BUSY, "node_ready": False})
    await fake.sleep(minutes=1)
    assert await count_scheduled(handle, "read_instance_status") == 1
    await fake.sleep(minutes=6)
    assert await count_scheduled(handle, "read_instance_status") == 4
    await fake.sleep(hours=3)
    checks = await count_scheduled(handle, "read_instance_status")
    assert 19 <= checks <= 23, "one check in ten minutes"
    await fake.signal_observed(handle, **BUSY)
    await fake.sleep(hours=1)
    assert await count_scheduled(handle, "read_instance_status") == checks
    await fake.signal_observed(handle, **{**BUSY, "node_ready": False})
    await fake.sleep(minutes=3)
    assert await count_scheduled(handle, "read_instance_status") == checks + 2, "the backoff is reset"


async def test_stale_empty_observation_is_verified_with_backoff(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    fake.pods.add("node-a", "web")
    checked_nodes: list[str] = []
    on_node = fake.pods.on_node

    async def recording_on_node(node_name: str, *, now: datetime) -> Sequence[DrainPod]:
        checked_nodes.append(node_name)
        return await on_node(node_name, now=now)

    monkeypatch.setattr(fake.pods, "on_node", recording_on_node)
    await observe_empty(fake, handle)
    await fake.sleep(hours=1)
    assert (await query_state(handle)).phase is Phase.READY
    assert 5 <= len(checked_nodes) <= 14


async def test_expired_permit_deletes_nothing(fake: WorkerHarness) -> None:
    """The API server did not respond while the permit was valid; another node may have the budget now."""
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    fake.nodes.faults["mark_disrupted"] = [TryLater("503") for _ in range(100)]
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: has_scheduled(handle, "disrupt_nodeclaim"))
    await pools.signal(NodePoolWorkflow.pause_disruption, await pause_for(fake, hours=1))
    await fake.sleep(minutes=3)
    fake.nodes.faults.clear()
    await fake.sleep(minutes=10)
    assert (await query_state(handle)).phase is Phase.READY
    assert not fake.claims.found["a"]["metadata"].get("deletionTimestamp")


OUTAGE = [TryLater("503")] * 10_000


async def test_deletion_does_not_wait_for_failing_registration(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    fake.nodes.faults["register"] = [*OUTAGE]
    await fake.signal_observed(handle, **JOINED)
    await wait_until(lambda: is_running(handle, "register_node"))
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: fake.claims.found == {})


async def test_deletion_does_not_wait_for_failing_initialization(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    fake.nodes.update_node("node-a", ready=True)
    fake.nodes.faults["mark_initialized"] = [*OUTAGE]
    await fake.signal_observed(handle, **BUSY)
    await wait_until(lambda: is_running(handle, "initialize_node"))
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: fake.claims.found == {})


async def test_deletion_does_not_wait_for_failing_restoration(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.faults["register"] = [*OUTAGE]
    await fake.signal_observed(handle, **{**BUSY, "registration_gaps": (REGISTERED_GAP,)})
    await wait_until(lambda: is_restored(handle))
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: fake.claims.found == {})


async def is_restored(handle: Handle) -> bool:
    """The second registration of the Node has begun."""
    return await count_scheduled(handle, "register_node") == 2


@pytest.mark.parametrize("observed", [{}, {**BUSY, "node_ready": False}], ids=["missing", "NotReady"])
async def test_drain_does_not_wait_for_failing_check_of_instance(
    fake: WorkerHarness, observed: dict[str, object]
) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.instances.faults["get"] = [*OUTAGE]
    await fake.signal_observed(handle, **observed)
    await wait_until_skipping_time(fake, lambda: is_running(handle, "read_instance_status"))
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, **observed, deleting=True)
    await wait_until(lambda: fake.pods.evicted == ["web"])


async def test_missing_node_with_maintenance_is_checked_with_pauses(fake: WorkerHarness) -> None:
    """In initialization, a stop and start for maintenance is no action."""
    handle, rules = await registered_nodeclaim(fake), interruption_rules(scheduledChange={"action": "stopStart"})
    await fake.signal_observed(handle, **JOINED, **rules)
    await send_message(fake, handle, starts=await fake.now() + timedelta(hours=48))
    fake.nodes.found.clear()
    await fake.signal_observed(handle, **rules)
    await fake.sleep(minutes=1)
    assert (await query_state(handle)).phase is Phase.INITIALIZATION
    assert await count_scheduled(handle, "read_instance_status") == 1
