"""Drains under a LifecyclePolicy: one that escalates after its rules changed, and one that is given up."""

from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.apis.lifecyclepolicy import LifecycleRules
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, eventually, state_of
from tests.support.workflows.lives import BUSY, delete, pool, ready

Runs = dict[str, WorkflowHandle[Any, Any]]


def _rules(**drain: Any) -> dict[str, Any]:
    return {"rules": LifecycleRules.model_validate({"drain": drain})}


def _hold(fake: World) -> None:
    fake.pods.place("node-a", "web", reschedulable=False, grace_seconds=1)
    fake.pods.blocked["web"] = "PodDisruptionBudget web"


async def nodeclaim_escalated(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    _hold(fake)
    await delete(fake, handle)
    await eventually(lambda: blocked(handle, "PodDisruptionBudget"))
    await fake.see(handle, **BUSY, deleting=True, **_rules(whenBlocked="escalate", blockedFor="1s"))
    await handle.result()
    return {"": handle}


async def nodeclaim_drain_given_up(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    await pool(fake)
    _hold(fake)
    now = await skipping.get_current_time()
    told = _rules(whenBlocked="giveUp", blockedFor="1s")
    await fake.see(handle, **BUSY, empty=True, empty_since=now, policy="WhenEmpty/0s", **told)

    async def given_up() -> bool:
        return (await state_of(handle)).gave_up is not None

    await eventually(given_up)
    fake.pods.blocked.clear()
    await handle.result()
    return {"": handle}
