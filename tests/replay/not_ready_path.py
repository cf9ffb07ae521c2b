"""The path of a node with an ambiguous registration, two NotReady intervals and a reboot."""

from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, is_blocked_by, query_state, wait_until, wait_until_phase
from tests.support.workflows.nodeclaim_workflows import BUSY, JOINED, delete_nodeclaim, launched_nodeclaim


async def nodeclaim_flaps(fake: WorkerHarness) -> dict[str, WorkflowHandle[Any, Any]]:
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, **{**JOINED, "node_count": 2})
    await wait_until(lambda: is_blocked_by(handle, "MultipleNodesFound"))
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    for flaps, boot in ((1, "boot-1"), (2, "boot-2")):
        not_ready_since = (await fake.now()).replace(microsecond=0)
        observed_not_ready = {
            **BUSY,
            "node_ready": False,
            "not_ready_since": not_ready_since,
            "not_ready_reason": "NotReady",
        }
        await fake.signal_observed(handle, **observed_not_ready)
        await wait_until(partial(_has_reported_intervals, handle, flaps, lasts=True))
        await fake.sleep(seconds=50)
        fake.nodes.update_node("node-a", boot_id=boot)
        await fake.signal_observed(
            handle, **{**BUSY, "boot_id": boot}, ready_since=not_ready_since + timedelta(seconds=49)
        )
        await wait_until(partial(_has_reported_intervals, handle, flaps, lasts=False))
    await wait_until(lambda: _has_rebooted(handle))
    await wait_until_phase(handle, Phase.READY)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    return {"": handle}


async def _has_reported_intervals(handle: Handle, flaps: int, *, lasts: bool) -> bool:
    state = await query_state(handle)
    return state.flaps == flaps and state.not_ready_annotation.endswith("/") is lasts


async def _has_rebooted(handle: Handle) -> bool:
    return (await query_state(handle)).reboots == 1
