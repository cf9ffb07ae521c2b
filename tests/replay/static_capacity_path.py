"""The path of a static NodePool: launch, replacement, limit, scale-down during a pause, and a failed step."""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.errors import BadInput
from tenure.model.observations import ObservedNodePool
from tenure.model.signals import Resume
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import wait_until, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import pause_for
from tests.support.workflows.static_nodepools import static_nodepool
from workflows.nodepool import NodePoolWorkflow


async def nodepool_static(fake: WorkerHarness) -> dict[str, WorkflowHandle[Any, Any]]:
    pool = await static_nodepool(fake, 2)
    for _ in range(3):
        fake.claims.found.clear()
        await pool.signal_observed()
        await wait_until_skipping_time(fake, lambda: pool.has_existing(2))
        await pool.signal_observed()
    await pool.scale(4, limits={"nodes": "3"})
    await wait_until(lambda: pool.waits_for("limits.nodes=3"))
    await pool.handle.execute_update(NodePoolWorkflow.pause, await pause_for(fake, hours=1))
    await pool.scale(1)
    await fake.sleep(minutes=5)
    await pool.handle.execute_update(NodePoolWorkflow.resume, Resume())
    await wait_until(lambda: pool.has_existing(1))
    fake.claims.faults["create"] = [BadInput("denied by a webhook")]
    await pool.scale(2)
    await wait_until_skipping_time(fake, lambda: pool.has_existing(2), seconds=20)
    fake.pools.found.clear()
    await pool.handle.signal(NodePoolWorkflow.observe, ObservedNodePool(number=1000, exists=False))
    await pool.handle.result()
    return {"": pool.handle}
