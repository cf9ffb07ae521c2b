"""The path of a node that is away twice, reboots, and whose registration was doubtful at first."""

from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, eventually, in_phase, state_of
from tests.support.workflows.lives import BUSY, JOINED, delete, launched


async def nodeclaim_away(fake: World, skipping: WorkflowEnvironment) -> dict[str, WorkflowHandle[Any, Any]]:
    handle = await launched(fake, skipping)
    await fake.see(handle, **{**JOINED, "node_count": 2})
    await eventually(lambda: blocked(handle, "MultipleNodesFound"))
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    for flaps, boot in ((1, "boot-1"), (2, "boot-2")):
        left = (await skipping.get_current_time()).replace(microsecond=0)
        gone = {**BUSY, "node_ready": False, "away_since": left, "away_for": "NotReady"}
        await fake.see(handle, **gone)
        await eventually(partial(_told, handle, flaps, lasts=True))
        await skipping.sleep(timedelta(seconds=50))
        fake.nodes.change("node-a", boot_id=boot)
        await fake.see(handle, **{**BUSY, "boot_id": boot}, ready_since=left + timedelta(seconds=49))
        await eventually(partial(_told, handle, flaps, lasts=False))
    await eventually(lambda: _rebooted(handle))
    await in_phase(handle, Phase.READY)
    await delete(fake, handle)
    await handle.result()
    return {"": handle}


async def _told(handle: Handle, flaps: int, *, lasts: bool) -> bool:
    state = await state_of(handle)
    return state.flaps == flaps and state.absences_told.endswith("/") is lasts


async def _rebooted(handle: Handle) -> bool:
    return (await state_of(handle)).reboots == 1
