"""The path of pauses: a NodePool's pause revokes a permit and cancels its drain; the node's own pause is reported."""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import ObservedNodePool
from tenure.model.signals import Resume
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import is_blocked_by, wait_until, wait_until_phase, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import BUSY, pause_for, ready_nodeclaim, start_nodepool
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodeclaim_drain_paused(fake: WorkerHarness) -> Runs:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake)
    fake.pods.add("node-a", "web", reschedulable=False, grace_seconds=1)
    fake.pods.blocked["web"] = "PodDisruptionBudget web"
    now = await fake.now()
    rules = LifecycleRules.model_validate({"drain": {"whenBlocked": "giveUp", "blockedFor": "9h"}})
    await fake.signal_observed(handle, **BUSY, empty=True, empty_since=now, consolidation="WhenEmpty/0s", rules=rules)
    await wait_until_phase(handle, Phase.DRAIN)
    await pools.execute_update(NodePoolWorkflow.pause, await pause_for(fake, hours=1))
    await wait_until_phase(handle, Phase.READY)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "NodePool default is paused"))
    await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(fake, minutes=30))

    async def pause_is_reported() -> bool:
        return "DisruptionPaused" in fake.events.reasons_for("a")

    await wait_until(pause_is_reported)
    fake.pods.blocked.clear()
    await pools.signal(NodePoolWorkflow.resume_disruption, Resume())
    await handle.result()
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=99, exists=False))
    await pools.result()
    return {"": handle, "pool": pools}
