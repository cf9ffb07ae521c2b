"""The path of a static pool: made, replaced, held by a limit, scaled down in a pause, and a step that fails."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import BadInput
from tenure.model.observations import PoolSeen
from tenure.model.signals import Resume
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_time
from tests.support.workflows.lives import pause_for
from tests.support.workflows.static_pools import kept
from workflows.nodepool import NodePoolWorkflow


async def nodepool_static(fake: World, skipping: WorkflowEnvironment) -> dict[str, WorkflowHandle[Any, Any]]:
    pool = await kept(fake, 2)
    for _ in range(3):
        fake.claims.found.clear()
        await pool.see()
        await in_time(skipping, lambda: pool.stand(2))
        await pool.see()
    await pool.scale(4, limits={"nodes": "3"})
    await eventually(lambda: pool.waits("limits.nodes=3"))
    await pool.handle.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, hours=1))
    await pool.scale(1)
    await skipping.sleep(timedelta(minutes=5))
    await pool.handle.execute_update(NodePoolWorkflow.resume, Resume())
    await eventually(lambda: pool.stand(1))
    fake.claims.faults["create"] = [BadInput("denied by a webhook")]
    await pool.scale(2)
    await in_time(skipping, lambda: pool.stand(2), seconds=20)
    fake.pools.found.clear()
    await pool.handle.signal(NodePoolWorkflow.seen, PoolSeen(number=1000, exists=False))
    await pool.handle.result()
    return {"": pool.handle}
