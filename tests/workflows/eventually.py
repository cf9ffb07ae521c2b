"""Waiting in tests for what a workflow is about to do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowHandle

from model.lifecycle import Phase
from workflows.nodeclaim import NodeClaimWorkflow

TRIES = 200


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(TRIES):
        if await holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never came to hold: {holds}")


async def in_phase(handle: WorkflowHandle[NodeClaimWorkflow, Any], phase: Phase) -> None:
    for _ in range(TRIES):
        state = await handle.query(NodeClaimWorkflow.state)
        if state.phase is phase:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never reached {phase}, is in {state.phase}: {state}")
