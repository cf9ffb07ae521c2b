"""Paths of node repair, of a blocked drain, and of a NodePool whose NodeClaims fail to start."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.kubernetes import node_conditions
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    is_blocked_by,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    create_nodeclaim,
    delete_nodeclaim,
    ready_nodeclaim,
    start_nodepool,
)

Runs = dict[str, WorkflowHandle[Any, Any]]
UNHEALTHY = node_conditions(Ready="True", KernelReady="False")
REPAIR_RULES = {"repair": {"steps": ["reboot", "replace"], "rebootFor": "5m", "within": "2h"}}
EXPIRY_RULES = {"expiry": {"jitter": "10%", "underBudget": True}}


async def nodeclaim_repaired(fake: WorkerHarness) -> Runs:
    """A reboot helps for some time; then the node is replaced."""
    handle = await ready_nodeclaim(fake)
    for boot in ("boot-1", "boot-2"):
        fake.nodes.update_node("node-a", conditions=UNHEALTHY)
        unhealthy_condition = {"type": "KernelReady", "status": "False", "since": await fake.now()}
        await fake.signal_observed(
            handle, **{**BUSY, "boot_id": boot, "unhealthy": [unhealthy_condition], "rules": REPAIR_RULES}
        )
        if boot == "boot-1":
            await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rebooted for"), minutes=1)
            fake.nodes.update_node("node-a", conditions=(), boot_id="boot-2")
            await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2", "rules": REPAIR_RULES})
            await fake.sleep(minutes=10)
            await wait_until_phase(handle, Phase.READY)
    await handle.result()
    return {"": handle}


async def nodeclaim_rebooted_after_drain(fake: WorkerHarness) -> Runs:
    """A blocked pod is evicted until the bound of the drain; then a reboot helps. No time is skipped before the drain,
    which measures progress with the real clock."""
    await start_nodepool(fake)
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web"
    fake.nodes.update_node("node-a", conditions=UNHEALTHY)
    unhealthy_since = await fake.now() - timedelta(hours=1)
    unhealthy_condition = {"type": "KernelReady", "status": "False", "since": unhealthy_since}
    observed = {**BUSY, "repair_mode": "replace", "rules": REPAIR_RULES}
    await fake.signal_observed(handle, **observed, unhealthy=[unhealthy_condition])
    await wait_until(lambda: is_blocked_by(handle, "is emptied to be rebooted"))
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rebooted for"), minutes=1)
    fake.nodes.update_node("node-a", conditions=(), boot_id="boot-2")
    await fake.signal_observed(handle, **{**observed, "boot_id": "boot-2"})
    await fake.sleep(minutes=1)
    await wait_until_phase(handle, Phase.READY)
    await wait_until(lambda: "Repaired" in fake.events.reasons_for("a"))
    return {"": handle}


async def nodeclaim_drain_blocked(fake: WorkerHarness) -> Runs:
    """A drain waits for a budget; a timer and then a signal of the watch cause passes."""
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web"
    await delete_nodeclaim(fake, handle)

    async def is_idle() -> bool:
        drain = (await query_state(handle)).drain
        return drain is not None and drain.idle_passes > 0

    await wait_until_skipping_time(fake, is_idle)
    fake.pods.blocked.clear()
    await fake.signal_observed(handle, **BUSY, deleting=True, drain="changed")
    await handle.result()
    return {"": handle}


async def nodepool_failed_start(fake: WorkerHarness) -> Runs:
    """The NodeClaim never registers, and its workflow reports this to the NodePool."""
    pools = await start_nodepool(fake)
    handle = await fake.start(await create_nodeclaim(fake))

    async def is_deleted() -> bool:
        return not fake.claims.found

    await wait_until_skipping_time(fake, is_deleted, minutes=1)
    await fake.sleep(seconds=1)
    return {"": pools, "claim": handle}
