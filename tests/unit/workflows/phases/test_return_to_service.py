"""A node that was tainted but not deleted is schedulable again: its taint would use up the budget it waits for."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tenure.apis import labels
from tenure.model.errors import BadInput, Fault, TryLater
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, count_scheduled, query_state, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import observe_empty, pause_for, ready_nodeclaim, start_nodepool
from workflows.nodeclaim import NodeClaimWorkflow


def is_tainted(fake: WorkerHarness) -> bool:
    return fake.nodes.found["node-a"].being_disrupted


def is_in_service(fake: WorkerHarness) -> bool:
    return not is_tainted(fake) and not fake.claims.condition_text("a", labels.DISRUPTION_REASON)


def inject_faults(fake: WorkerHarness, faults: Callable[[], Fault]) -> None:
    """NodeClaim deletions and taint removals fail for longer than a permit is valid."""
    fake.claims.faults["delete"] = [faults() for _ in range(100)]
    fake.nodes.faults["unmark_disrupted"] = [faults() for _ in range(100)]


async def tainted_nodeclaim(fake: WorkerHarness, faults: Callable[[], Fault]) -> Handle:
    """A tainted node whose permit has expired."""
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake, budgets=[{"nodes": "100%"}])
    inject_faults(fake, faults)
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_tainted(fake))
    await fake.sleep(minutes=5)
    return handle


@pytest.mark.parametrize("faults", [lambda: TryLater("503"), lambda: BadInput("422")])
async def test_failed_deletion_does_not_block_itself_by_its_taint(
    fake: WorkerHarness, faults: Callable[[], Fault]
) -> None:
    handle = await tainted_nodeclaim(fake, faults)
    fake.claims.faults.clear()
    fake.nodes.faults.clear()
    began = await fake.now()
    outcome = await handle.result()
    assert outcome.reason == "Empty" and outcome.history[-1].at - began < timedelta(minutes=2)


async def test_node_is_deleted_although_taint_removal_fails(fake: WorkerHarness) -> None:
    """An admission webhook may reject the removal."""
    handle = await tainted_nodeclaim(fake, lambda: TryLater("503"))
    fake.nodes.faults["unmark_disrupted"] = [BadInput("422") for _ in range(1000)]
    fake.claims.faults.clear()
    await wait_until_skipping_time(fake, lambda: not fake.claims.found, seconds=240)
    assert (await handle.result()).reason == "Empty"


async def test_node_returns_to_service_once_api_server_recovers(fake: WorkerHarness) -> None:
    handle = await tainted_nodeclaim(fake, lambda: TryLater("503"))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(fake, hours=3))
    fake.nodes.faults.clear()
    await fake.sleep(seconds=30)
    assert is_in_service(fake) and (await query_state(handle)).phase is Phase.READY


async def test_return_to_service_is_retried_every_minute(fake: WorkerHarness) -> None:
    handle = await tainted_nodeclaim(fake, lambda: TryLater("503"))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(fake, hours=3))
    fake.nodes.faults["unmark_disrupted"] = [BadInput("422") for _ in range(1000)]
    await fake.sleep(minutes=1)
    before = await count_scheduled(handle, "restore_schedulable")
    await fake.sleep(minutes=10)
    assert 5 <= await count_scheduled(handle, "restore_schedulable") - before <= 11


async def test_deletion_stopped_by_pause_leaves_no_taint(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake, budgets=[{"nodes": "100%"}])
    inject_faults(fake, lambda: TryLater("503"))
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_tainted(fake))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(fake, hours=3))
    await fake.sleep(seconds=20)
    fake.nodes.faults.clear()
    await fake.sleep(seconds=30)
    assert is_in_service(fake) and (await query_state(handle)).phase is Phase.READY


async def test_taint_of_disruption_command_is_kept(fake: WorkerHarness) -> None:
    handle = await tainted_nodeclaim(fake, lambda: TryLater("503"))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(fake, hours=3))
    conditions = [
        one for one in fake.claims.found["a"]["status"]["conditions"] if one["type"] == labels.DISRUPTION_REASON
    ]
    conditions[0]["message"] = "test/disruption/1"
    fake.nodes.faults.clear()
    await wait_until_skipping_time(fake, lambda: is_restored(handle))
    assert is_tainted(fake)


async def is_restored(handle: Handle) -> bool:
    return not (await query_state(handle)).out_of_service and await count_scheduled(handle, "restore_schedulable") >= 1


async def test_successful_deletion_restores_nothing(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    fake.pods.add("node-a", "web")
    await observe_empty(fake, handle)
    await fake.sleep(minutes=2)
    fake.pods.by_node.clear()
    await handle.result()
    assert await count_scheduled(handle, "restore_schedulable") == 0
