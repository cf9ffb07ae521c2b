"""Nodes that AWS says something of: some go at once, one waits for a person, one is stopped and started."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, eventually, in_phase, in_time, state_of
from tests.support.workflows.lives import BUSY, delete, launched
from tests.support.workflows.noticed import notice, ready_under, rules

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodeclaim_interrupted_early(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await launched(fake, skipping)
    starts = await skipping.get_current_time() + timedelta(minutes=6)
    await fake.see(handle, **rules(scheduledChange={"action": "deferUntilEventStart", "lead": "1m"}))
    await notice(fake, skipping, handle, starts=starts)
    await handle.result()
    return {"": handle}


async def nodeclaim_approved(fake: World, skipping: WorkflowEnvironment) -> Runs:
    stateful = {"matchLabels": {"state": "kept"}, "action": "waitForApproval", "fallback": "notify"}
    handle = await ready_under(fake, skipping, scheduledChange={"action": "waitForApproval"}, workloads=[stateful])
    fake.pods.place("node-a", "db", labels={"state": "kept"})
    starts = await skipping.get_current_time() + timedelta(hours=48)
    await notice(fake, skipping, handle, starts=starts)
    await eventually(lambda: blocked(handle, "waits for approval"))
    await handle.signal("event_rejected", {"by": "ben"})
    await in_time(skipping, lambda: blocked(handle, "rejected by ben"))
    deferred = {"action": "drain"}
    await fake.see(handle, **BUSY, **rules(scheduledChange=deferred, workloads=[stateful]))
    await in_phase(handle, Phase.DRAIN)
    await eventually(lambda: blocked(handle, "default/db"))
    await handle.execute_update("approve_event", {"by": "ann"})
    await handle.result()
    return {"": handle}


async def nodeclaim_overtaken(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """A drain that AWS recommended and that holds a pod goes on for a warning, and in the end for a failing check."""
    stateful = {"matchLabels": {"state": "kept"}, "action": "waitForApproval"}
    handle = await ready_under(fake, skipping, rebalanceRecommendation={"action": "drain"}, workloads=[stateful])
    fake.pods.place("node-a", "db", labels={"state": "kept"})
    await notice(fake, skipping, handle, "rebalanceRecommendation")
    await eventually(lambda: blocked(handle, "default/db: rebalanceRecommendation"))
    fake.pods.blocked["db"] = "a budget"
    await notice(fake, skipping, handle, "spotInterruption")
    await eventually(lambda: blocked(handle, "a budget"))
    await notice(fake, skipping, handle, "instanceStatus", source="status")
    await handle.result()
    return {"": handle}


async def nodeclaim_cycled(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready_under(fake, skipping, scheduledChange={"action": "stopStart"})
    await notice(fake, skipping, handle, starts=await skipping.get_current_time() + timedelta(hours=48))
    await eventually(lambda: _step(handle, "back"))
    fake.nodes.change("node-a", boot_id="boot-2")
    back = {**BUSY, "boot_id": "boot-2", "ready_since": await skipping.get_current_time()}
    await fake.see(handle, **back)
    await eventually(lambda: _step(handle, "done"))
    await in_phase(handle, Phase.READY)
    await delete(fake, handle)
    await handle.result()
    return {"": handle}


async def _step(handle: Handle, name: str) -> bool:
    stop = (await state_of(handle)).stop
    return stop is not None and stop.step == name
