"""Put back: a node was taken out of service, its permit lapsed before its NodeClaim could be deleted, and later it
goes."""

from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import TryLater
from tests.support.fakes.worker import World
from tests.support.workflows.lives import emptied, pool, ready

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodeclaim_put_back(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    await pool(fake, budgets=[{"nodes": "100%"}])
    fake.claims.faults["delete"] = [TryLater("503") for _ in range(18)]
    fake.nodes.faults["unmark_disrupted"] = [TryLater("503") for _ in range(18)]
    await emptied(fake, skipping, handle)
    await handle.result()
    return {"": handle}
