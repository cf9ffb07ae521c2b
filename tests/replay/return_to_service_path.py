"""The path of a return to service: the permit expires before the NodeClaim can be deleted; later the node is
disrupted.
"""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.errors import TryLater
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.nodeclaim_workflows import observe_empty, ready_nodeclaim, start_nodepool

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodeclaim_restored_schedulable(fake: WorkerHarness) -> Runs:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake, budgets=[{"nodes": "100%"}])
    fake.claims.faults["delete"] = [TryLater("503") for _ in range(18)]
    fake.nodes.faults["unmark_disrupted"] = [TryLater("503") for _ in range(18)]
    await observe_empty(fake, handle)
    await handle.result()
    return {"": handle}
