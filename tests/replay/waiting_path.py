"""Waiting: a refused node asks again, its pool looks ever more slowly until room is told of; a NotReady node is looked
after."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.observations import PoolSeen
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, in_time
from tests.support.workflows.lives import BUSY, delete, emptied, pool, ready
from workflows.nodepool import NodePoolWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodepool_told(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """Recorded since both come ever more slowly."""
    return await _waits(fake, skipping)


async def nodeclaim_not_ready(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """Recorded while its instance was looked at every two minutes."""
    return await _not_ready(fake, skipping)


async def _waits(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """For a budget of nothing, then for one that another node uses up."""
    handle = await ready(fake, skipping)
    fake.claims.add("b")
    fake.claims.give("b", provider_id="aws:///us-west-2a/i-b", Initialized="True")
    fake.nodes.join("node-b", "aws:///us-west-2a/i-b", labels={"karpenter.sh/nodepool": "default"}, ready=False)
    pools = await pool(fake, budgets=[{"nodes": "0"}])
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "budget 0"))
    await skipping.sleep(timedelta(minutes=15))
    fake.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=2))
    await skipping.sleep(timedelta(minutes=25))
    await in_time(skipping, lambda: blocked(handle, "1 in use"))
    fake.nodes.change("node-b", ready=True)
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=3, generation=2, freed=1))
    await handle.result()
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=99, exists=False))
    await pools.result()
    return {"": pools, "claim": handle}


async def _not_ready(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    await fake.see(handle, **{**BUSY, "node_ready": False})
    await skipping.sleep(timedelta(minutes=45))
    await fake.see(handle, **BUSY)
    await skipping.sleep(timedelta(minutes=1))
    await delete(fake, handle)
    await handle.result()
    return {"": handle}
