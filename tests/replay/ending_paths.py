"""Paths of lives that end by their health or their age, and of a pool whose NodeClaims fail to start."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, in_phase, in_time
from tests.support.workflows.lives import BUSY, born, pool, ready

Runs = dict[str, WorkflowHandle[Any, Any]]
SICK = (("Ready", "True"), ("KernelReady", "False"))
LADDER = {"repair": {"steps": ["reboot", "replace"], "rebootFor": "5m", "within": "2h"}}
ASKS = {"expiry": {"jitter": "10%", "underBudget": True}}


async def nodeclaim_repaired(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """A reboot helps for a while; then the node is replaced."""
    handle = await ready(fake, skipping)
    for boot in ("boot-1", "boot-2"):
        fake.nodes.change("node-a", conditions=SICK)
        ill = {"type": "KernelReady", "status": "False", "since": await skipping.get_current_time()}
        await fake.see(handle, **{**BUSY, "boot_id": boot, "unhealthy": [ill], "rules": LADDER})
        if boot == "boot-1":
            await in_time(skipping, lambda: blocked(handle, "rebooted for"), minutes=1)
            fake.nodes.change("node-a", conditions=(), boot_id="boot-2")
            await fake.see(handle, **{**BUSY, "boot_id": "boot-2", "rules": LADDER})
            await skipping.sleep(timedelta(minutes=10))
            await in_phase(handle, Phase.READY)
    await handle.result()
    return {"": handle}


async def nodepool_failed_start(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """Its NodeClaim never joins, and says so to the pool."""
    pools = await pool(fake)
    handle = await fake.start(await born(fake, skipping))

    async def gone() -> bool:
        return not fake.claims.found

    await in_time(skipping, gone, minutes=1)
    await skipping.sleep(timedelta(seconds=1))
    return {"": pools, "claim": handle}
