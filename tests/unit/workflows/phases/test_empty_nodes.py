"""An empty node is deleted with a permit of its NodePool, or reports why it is kept."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim.state import Phase
from tenure.model.signals import Pause, Resume
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    count_completed_tasks,
    has_scheduled,
    is_blocked_by,
    non_task_event_types,
    query_state,
    wait_until,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import BUSY, observe_empty, pause_for, ready_nodeclaim, start_nodepool
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow


async def test_empty_node_is_deleted_after_consolidate_after_with_permit(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    began = await fake.now()
    await observe_empty(fake, handle)
    outcome = await handle.result()
    assert outcome.reason == "Empty"
    assert outcome.history[-1].at - began >= timedelta(seconds=30)
    assert fake.instances.running == {} and fake.claims.found == {}


async def test_deletion_by_permit_adds_at_most_100_events(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    await observe_empty(fake, handle)
    await handle.result()
    own = await non_task_event_types(handle)
    assert len(own) <= 45, own
    assert await count_completed_tasks(handle) <= 22


async def test_rejected_permit_reports_budget_on_node_and_nodepool(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0 of 1 nodes allows 0"), seconds=10)
    assert "budget 0" in (await pools.query(NodePoolWorkflow.state)).blocked_by
    assert fake.instances.terminated == []


async def test_empty_node_without_nodepool_workflow_is_reported_and_deleted_later(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "no workflow yet"), seconds=10)
    await start_nodepool(fake)
    assert (await handle.result()).reason == "Empty"


async def test_pod_unknown_to_cache_keeps_node(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake)
    fake.pods.add("node-a", "web")
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "not empty: default/web"), seconds=10)
    await wait_until(lambda: has_no_permits(pools))
    assert all(one.key != "karpenter.sh/disrupted" for one in fake.nodes.found["node-a"].taints)
    fake.pods.by_node.clear()
    assert (await handle.result()).reason == "Empty"
    assert len(fake.instances.terminated) == 1


async def has_no_permits(pools: Any) -> bool:
    return bool((await pools.query(NodePoolWorkflow.state)).permits == ())


async def test_rejected_deletion_releases_permit(fake: WorkerHarness) -> None:
    """Otherwise a node whose deletion a webhook rejects would use up the budget for ever."""
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake)
    fake.claims.faults["delete"] = [BadInput("denied by a webhook") for _ in range(3)]
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "denied by a webhook"), seconds=10)
    await wait_until(lambda: has_no_permits(pools))
    assert (await handle.result()).reason == "Empty"


async def test_node_that_is_needed_again_is_not_deleted_by_a_retry(fake: WorkerHarness) -> None:
    """Pods are expected on it, which the live state of the node does not show."""
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake)
    fake.nodes.faults["mark_disrupted"] = [TryLater("503") for _ in range(100)]
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: has_scheduled(handle, "disrupt_nodeclaim"))
    await fake.signal_observed(handle, **BUSY, consolidation="WhenEmpty/30s")
    fake.nodes.faults.clear()
    await wait_until(lambda: has_no_permits(pools))
    assert (await query_state(handle)).phase is Phase.READY


async def test_node_in_use_again_withdraws_permit_request(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: has_pending_requests(pools, 1), seconds=10)
    await fake.signal_observed(handle, **BUSY, consolidation="WhenEmpty/30s")
    await wait_until(lambda: has_pending_requests(pools, 0))
    assert (await query_state(handle)).blocked_by == ""


async def test_pods_that_come_and_go_restart_consolidate_after(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    for _ in range(6):
        await observe_empty(fake, handle)
        await fake.sleep(seconds=10)
        await fake.signal_observed(handle, **BUSY, consolidation="WhenEmpty/30s")
    assert (await query_state(handle)).phase is Phase.READY
    await observe_empty(fake, handle)
    assert (await handle.result()).reason == "Empty"


async def test_paused_node_is_kept_until_pause_ends(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    pause = await pause_for(fake, hours=3)
    result = await handle.execute_update(NodeClaimWorkflow.pause, pause)
    assert result.accepted
    await observe_empty(fake, handle)
    await fake.sleep(hours=2)
    assert await is_blocked_by(handle, "the node is paused by ops@example.com until")
    outcome = await handle.result()
    assert outcome.reason == "Empty" and outcome.history[-1].at >= pause.until


@pytest.mark.parametrize("by_signal", [False, True], ids=["update", "signal"])
async def test_resume_deletes_paused_empty_node(fake: WorkerHarness, by_signal: bool) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    pause = await pause_for(fake, hours=3)
    if by_signal:
        await handle.signal(NodeClaimWorkflow.pause_disruption, pause)
    else:
        await handle.execute_update(NodeClaimWorkflow.pause, pause)
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "paused by"), seconds=10)
    if by_signal:
        await handle.signal(NodeClaimWorkflow.resume_disruption, Resume(by="ops@example.com"))
    else:
        await handle.execute_update(NodeClaimWorkflow.resume, Resume())
    outcome = await handle.result()
    assert outcome.reason == "Empty" and outcome.history[-1].at < pause.until


async def test_pause_in_the_past_is_rejected(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(fake, hours=-1))
    assert "in the past, expected a future time" in str(error.value.__cause__)
    assert (await query_state(handle)).pause is None


async def test_pause_blocks_neither_deletion_nor_expiration(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="2h")
    pause: Pause = await pause_for(fake, hours=24)
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    outcome = await handle.result()
    assert outcome.reason == "Expired" and outcome.history[-1].at < pause.until


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"consolidation": "WhenEmpty/Never"}, ""),
        ({"consolidation": ""}, "no NodePool"),
        ({"consolidation": "WhenEmpty/30s", "do_not_disrupt": True}, "do-not-disrupt"),
    ],
)
async def test_empty_node_that_is_kept_adds_no_events_and_reports_reason(
    fake: WorkerHarness, fields: dict[str, Any], why: str
) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle, **BUSY, empty=True, empty_since=await fake.now(), **fields)
    await fake.sleep(minutes=1)
    before = len((await handle.fetch_history()).events)
    await fake.sleep(hours=5)
    assert len((await handle.fetch_history()).events) == before
    assert await is_blocked_by(handle, why)


async def has_pending_requests(pools: Any, count: int) -> bool:
    return len((await pools.query(NodePoolWorkflow.state)).pending_requests) == count


async def test_empty_time_continues_after_watch_restart(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    await observe_empty(fake, handle, consolidation="WhenEmpty/1h")
    since = (await query_state(handle)).observed.empty_since
    assert since is not None
    await fake.sleep(minutes=50)
    now = await fake.now()
    unseen = {"empty": True, "empty_since": now, "empty_since_unseen": True, "consolidation": "WhenEmpty/1h"}
    await fake.signal_observed(handle, **BUSY, **unseen)
    history = (await handle.result()).history
    drained = next(step.at for step in history if step.phase is Phase.DRAIN)
    assert timedelta(hours=1) <= drained - since < timedelta(minutes=70)
