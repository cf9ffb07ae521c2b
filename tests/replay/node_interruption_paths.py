"""Paths of interrupted nodes: deferred drain, approval, superseding events, and stop and start of the instance."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    is_blocked_by,
    is_stop_in_step,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.interruption_messages import interruption_rules, ready_with_rules, send_message
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, launched_nodeclaim

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodeclaim_interrupted_early(fake: WorkerHarness) -> Runs:
    handle = await launched_nodeclaim(fake)
    event_start = await fake.now() + timedelta(minutes=6)
    await fake.signal_observed(
        handle, **interruption_rules(scheduledChange={"action": "deferUntilEventStart", "lead": "1m"})
    )
    await send_message(fake, handle, starts=event_start)
    await handle.result()
    return {"": handle}


async def nodeclaim_approved(fake: WorkerHarness) -> Runs:
    stateful = {"matchLabels": {"state": "kept"}, "action": "waitForApproval", "fallback": "notify"}
    handle = await ready_with_rules(fake, scheduledChange={"action": "waitForApproval"}, workloads=[stateful])
    fake.pods.add("node-a", "db", labels={"state": "kept"})
    event_start = await fake.now() + timedelta(hours=48)
    await send_message(fake, handle, starts=event_start)
    await wait_until(lambda: is_blocked_by(handle, "waits for approval"))
    await handle.signal("reject_event", {"by": "ben"})
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rejected by ben"))
    deferred = {"action": "drain"}
    await fake.signal_observed(handle, **BUSY, **interruption_rules(scheduledChange=deferred, workloads=[stateful]))
    await wait_until_phase(handle, Phase.DRAIN)
    await wait_until(lambda: is_blocked_by(handle, "default/db"))
    await handle.execute_update("approve_event", {"by": "ann"})
    await handle.result()
    return {"": handle}


async def nodeclaim_event_superseded(fake: WorkerHarness) -> Runs:
    """A drain for a rebalance recommendation waits for a pod; a spot warning and then a failed status check
    supersede it.
    """
    stateful = {"matchLabels": {"state": "kept"}, "action": "waitForApproval"}
    handle = await ready_with_rules(fake, rebalanceRecommendation={"action": "drain"}, workloads=[stateful])
    fake.pods.add("node-a", "db", labels={"state": "kept"})
    await send_message(fake, handle, "rebalanceRecommendation")
    await wait_until(lambda: is_blocked_by(handle, "default/db: rebalanceRecommendation"))
    fake.pods.blocked["db"] = "a budget"
    await send_message(fake, handle, "spotInterruption")
    await wait_until(lambda: is_blocked_by(handle, "a budget"))
    await send_message(fake, handle, "instanceStatus", source="status")
    await handle.result()
    return {"": handle}


async def nodeclaim_stop_start(fake: WorkerHarness) -> Runs:
    handle = await ready_with_rules(fake, scheduledChange={"action": "stopStart"})
    await send_message(fake, handle, starts=await fake.now() + timedelta(hours=48))
    await wait_until(lambda: is_stop_in_step(handle, "back"))
    fake.nodes.update_node("node-a", boot_id="boot-2")
    ready_again = {**BUSY, "boot_id": "boot-2", "ready_since": await fake.now()}
    await fake.signal_observed(handle, **ready_again)
    await wait_until(lambda: is_stop_in_step(handle, "done"))
    await wait_until_phase(handle, Phase.READY)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    return {"": handle}
