"""Coordinator workflows with lost hosts, terminal faults, and nodes that were deleted for another reason."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.errors import BadInput
from tenure.model.observations import ObservedDemand, ObservedNodePool
from tenure.model.plan import PlanOutcome
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_provisioning
from tests.support.workflows.eventually import is_blocked_by, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import delete_nodeclaim, observe_empty, ready_nodeclaim, start_nodepool
from workflows.nodepool import NodePoolWorkflow
from workflows.provisioner import ProvisioningWorkflow


async def start_provisioning_with_pods(fake: WorkerHarness) -> WorkflowHandle[Any, Any]:
    handle = await start_provisioning(fake)
    newest = await fake.now() - timedelta(minutes=1)
    await handle.signal(ProvisioningWorkflow.pending_pods, ObservedDemand(number=1, pods=1, newest_pod_at=newest))
    return handle


async def test_plan_of_lost_host_is_requested_again_with_same_id(fake: WorkerHarness) -> None:
    """The lost pass may have created NodeClaims. Only the same plan ID finds and launches them."""
    fake.host.faults["plan"] = [BadInput("the host is gone")]
    fake.host.outcomes = [PlanOutcome(plan_id="", blocked="caches are too old: pods")]
    async with fake.running_planner():
        await start_provisioning_with_pods(fake)
        await wait_until_skipping_time(fake, lambda: len(fake.host.planned) >= 2)
    assert len({one.plan_id for one in fake.host.planned}) == 1


async def test_blocked_plan_is_requested_with_backoff(fake: WorkerHarness) -> None:
    fake.host.outcomes = [PlanOutcome(plan_id="", blocked="types are not known") for _ in range(500)]
    async with fake.running_planner():
        handle = await start_provisioning_with_pods(fake)
        await wait_until_skipping_time(fake, lambda: len(fake.host.planned) >= 8)
    timers = [
        event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
        for event in (await handle.fetch_history()).events
        if b"types are not known" in event.user_metadata.summary.data
    ]
    assert [one.total_seconds() for one in timers][:7] == [2, 2, 2, 4, 8, 10, 10]


async def test_permit_request_of_deleted_node_is_removed(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0"))
    assert await has_pending_requests(pools, 1)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, usage="less"))
    await wait_until_skipping_time(fake, lambda: has_pending_requests(pools, 0))


async def has_pending_requests(pools: Any, count: int) -> bool:
    return len((await pools.query(NodePoolWorkflow.state)).pending_requests) == count
