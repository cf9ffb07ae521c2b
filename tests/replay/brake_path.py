"""The brake: a pool's pause calls a permit back and ends the drain that it was for; a node's own is written down."""

from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.nodeclaim_state import Phase
from tenure.model.observations import PoolSeen
from tenure.model.signals import Resume
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, eventually, in_phase, in_time
from tests.support.workflows.lives import BUSY, pause_for, pool, ready
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodeclaim_braked(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    pools = await pool(fake)
    fake.pods.place("node-a", "web", reschedulable=False, grace_seconds=1)
    fake.pods.blocked["web"] = "PodDisruptionBudget web"
    now = await skipping.get_current_time()
    rules = LifecycleRules.model_validate({"drain": {"whenBlocked": "giveUp", "blockedFor": "9h"}})
    await fake.see(handle, **BUSY, empty=True, empty_since=now, policy="WhenEmpty/0s", rules=rules)
    await in_phase(handle, Phase.DRAIN)
    await pools.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, hours=1))
    await in_phase(handle, Phase.READY)
    await in_time(skipping, lambda: blocked(handle, "NodePool default is paused"))
    await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(skipping, minutes=30))

    async def told() -> bool:
        return "DisruptionPaused" in fake.events.reasons("a")

    await eventually(told)
    fake.pods.blocked.clear()
    await pools.signal(NodePoolWorkflow.resume_disruption, Resume())
    await handle.result()
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=99, exists=False))
    await pools.result()
    return {"": handle, "pool": pools}
