"""Paths of polling: a NodePool without headroom, whose interval grows until headroom is signaled, and a NotReady
node.
"""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.observations import ObservedNodePool
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import is_blocked_by, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    delete_nodeclaim,
    observe_empty,
    ready_nodeclaim,
    start_nodepool,
)
from workflows.nodepool import NodePoolWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodepool_waits_with_backoff(fake: WorkerHarness) -> Runs:
    """The node requests again and the NodePool polls, both at growing intervals."""
    return await _run_waiting_nodepool(fake)


async def nodeclaim_not_ready(fake: WorkerHarness) -> Runs:
    """The instance is polled every two minutes while its node is NotReady."""
    return await _run_not_ready_nodeclaim(fake)


async def _run_waiting_nodepool(fake: WorkerHarness) -> Runs:
    """The budget is 0 at first; then another node uses up a budget of 1."""
    handle = await ready_nodeclaim(fake)
    fake.claims.add("b")
    fake.claims.set_status("b", provider_id="aws:///us-west-2a/i-b", Initialized="True")
    fake.nodes.join("node-b", "aws:///us-west-2a/i-b", labels={"karpenter.sh/nodepool": "default"}, ready=False)
    pools = await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0"))
    await fake.sleep(minutes=15)
    fake.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=2))
    await fake.sleep(minutes=25)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "1 in use"))
    fake.nodes.update_node("node-b", ready=True)
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=3, generation=2, freed=1))
    await handle.result()
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=99, exists=False))
    await pools.result()
    return {"": pools, "claim": handle}


async def _run_not_ready_nodeclaim(fake: WorkerHarness) -> Runs:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle, **{**BUSY, "node_ready": False})
    await fake.sleep(minutes=45)
    await fake.signal_observed(handle, **BUSY)
    await fake.sleep(minutes=1)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    return {"": handle}
