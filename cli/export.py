"""`tenure history export`: histories of lives that ended, before Temporal lets them go. Safe to repeat."""

import asyncio
from dataclasses import dataclass
from datetime import datetime

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from cli.archive import Archive
from cli.lives import Lives
from model.faults import Fault

AT_ONCE = 8


@dataclass(frozen=True)
class Exported:
    written: tuple[str, ...] = ()
    there: int = 0
    """That an earlier run wrote."""
    failed: tuple[str, ...] = ()
    """A line each: which, and why."""


def name_of(execution: WorkflowExecution) -> str:
    """A run each: a life that was continued has several."""
    return f"{execution.id}/{execution.run_id}.json"


async def export(client: Client, cluster: str, to: Archive, after: datetime | None) -> Exported:
    """Lives that ended since then, or all that Temporal still has. One that fails does not keep the others."""
    closed = "ExecutionStatus != 'Running'"
    if after:
        closed += f" AND CloseTime >= '{after.isoformat()}'"
    found = await Lives(client, cluster).executions(closed)
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(execution: WorkflowExecution) -> Exported:
        name = name_of(execution)
        async with turn:
            try:
                if await asyncio.to_thread(to.has, name):
                    return Exported(there=1)
                handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
                history = await handle.fetch_history()
                await asyncio.to_thread(to.put, name, history.to_json())
            except (RPCError, Fault, OSError, ValueError) as error:
                return Exported(failed=(f"{name}: {getattr(error, 'message', None) or error}",))
            return Exported(written=(name,))

    done = await asyncio.gather(*map(one, found))
    return Exported(
        written=tuple(name for part in done for name in part.written),
        there=sum(part.there for part in done),
        failed=tuple(line for part in done for line in part.failed),
    )
