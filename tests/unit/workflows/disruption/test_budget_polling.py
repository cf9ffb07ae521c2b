"""NodePool: while permit requests wait, the workflow reads its budget after signals, and otherwise with backoff."""

from typing import Any

from temporalio.api.enums.v1 import EventType

from tenure.model.observations import ObservedNodePool
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import count_scheduled, is_blocked_by, wait_until, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import observe_empty, pause_for, ready_nodeclaim, start_nodepool
from tests.unit.workflows.test_nodepool import (
    add_nodeclaims,
    have_permits,
    have_rejections,
    permit_decisions,
    request_permits,
)
from workflows.nodepool import NodePoolWorkflow

READ = "read_allowed_disruptions"
NOT_READY_NODE = {"labels": {"karpenter.sh/nodepool": "default"}, "ready": False}


async def start_waiting_nodepool(fake: WorkerHarness) -> Any:
    """`a` requests a permit, and the NotReady node of `b` uses up the budget."""
    await add_nodeclaims(fake, "a", "b")
    fake.nodes.join("node-b", "aws:///us-west-2a/i-b", **NOT_READY_NODE)
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    return pools


async def test_used_up_budget_is_polled_with_backoff(fake: WorkerHarness) -> None:
    pools = await start_waiting_nodepool(fake)
    await fake.sleep(minutes=4)
    assert 3 <= await count_scheduled(pools, READ) <= 5
    await fake.sleep(hours=1)
    assert await count_scheduled(pools, READ) <= 20, "one poll in four minutes"
    fake.nodes.update_node("node-b", ready=True)
    await fake.sleep(minutes=4, seconds=5)
    assert await have_permits(fake, "a"), "without a signal"


async def test_signaled_headroom_is_used_at_once_without_status_update(fake: WorkerHarness) -> None:
    pools = await start_waiting_nodepool(fake)
    await fake.sleep(minutes=30)
    written = await count_scheduled(pools, "update_nodepool_status")
    fake.nodes.update_node("node-b", ready=True)
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, freed=7))
    await fake.sleep(seconds=1)
    await wait_until(lambda: have_permits(fake, "a"))
    assert await count_scheduled(pools, "update_nodepool_status") == written


async def test_headroom_signal_with_another_change_updates_status(fake: WorkerHarness) -> None:
    pools = await start_waiting_nodepool(fake)
    written = await count_scheduled(pools, "update_nodepool_status")
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, usage="more", freed=7))
    await wait_until_skipping_time(fake, lambda: has_written_status(pools, written + 1))


async def test_change_resets_poll_backoff(fake: WorkerHarness) -> None:
    pools = await start_waiting_nodepool(fake)
    await fake.sleep(minutes=30)
    reads_before = await count_scheduled(pools, READ)
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, freed=7))
    await fake.sleep(minutes=2)
    assert await count_scheduled(pools, READ) - reads_before >= 3


async def test_zero_budget_is_read_again_only_after_nodepool_change(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    pools = await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    await fake.sleep(minutes=50)
    assert await count_scheduled(pools, READ) == 1
    fake.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=2))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))


async def test_paused_nodepool_reads_no_budget_until_resume(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await pools.execute_update(NodePoolWorkflow.pause, await pause_for(fake, minutes=50))
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    await fake.sleep(minutes=48)
    assert await count_scheduled(pools, READ) == 1 and not await have_permits(fake, "a")
    await fake.sleep(minutes=2, seconds=5)
    await wait_until(lambda: have_permits(fake, "a"))


async def test_repeated_request_gets_response_without_poll(fake: WorkerHarness) -> None:
    pools = await start_waiting_nodepool(fake)
    await fake.sleep(minutes=30)
    reads_before = await count_scheduled(pools, READ)
    await request_permits(fake, pools, "a")
    await wait_until(lambda: has_two_decisions(fake, "a"))
    first, second = await permit_decisions(fake, "a")
    assert first == second and "1 in use" in second.blocked_by
    assert await count_scheduled(pools, READ) == reads_before


async def test_rejected_nodeclaim_repeats_request_with_backoff(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0"))
    await fake.sleep(minutes=11)
    assert await count_permit_requests(handle) == 2
    await fake.sleep(hours=5)
    assert 5 <= await count_permit_requests(handle) <= 8, "once an hour"
    assert await is_blocked_by(handle, "budget 0")


async def has_written_status(pools: Any, times: int) -> bool:
    return await count_scheduled(pools, "update_nodepool_status") >= times


async def has_two_decisions(fake: WorkerHarness, name: str) -> bool:
    return len(await permit_decisions(fake, name)) == 2


async def count_permit_requests(handle: Any) -> int:
    sent = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
    return sum(one.event_type == sent for one in (await handle.fetch_history()).events)


async def test_repeated_request_keeps_blocked_by_and_publishes_once(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0"))
    await fake.sleep(minutes=15)
    upserts_before = await count_upserts(handle)
    await fake.sleep(hours=2)
    assert await count_permit_requests(handle) >= 3 and await is_blocked_by(handle, "budget 0")
    assert await count_upserts(handle) == upserts_before
    assert fake.events.reasons_for("a").count("DisruptionBlocked") == 1


async def count_upserts(handle: Any) -> int:
    """How often its search attributes changed."""
    history = await handle.fetch_history()
    kind = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
    return sum(event.event_type == kind for event in history.events)


async def test_pending_request_gets_new_cause(fake: WorkerHarness) -> None:
    pools = await start_waiting_nodepool(fake)
    fake.pools.add("default", disruption={"budgets": [{"nodes": "0"}]})
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=2))
    await wait_until_skipping_time(fake, lambda: has_two_decisions(fake, "a"))
    first, second = await permit_decisions(fake, "a")
    assert "budget 1 of" in first.blocked_by and "budget 0 of" in second.blocked_by
    fake.pools.add("default", disruption={"budgets": [{"nodes": "0"}], "consolidateAfter": "1h"})
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=3, generation=3))
    await fake.sleep(minutes=1)
    assert len(await permit_decisions(fake, "a")) == 2, "the cause is the same"
