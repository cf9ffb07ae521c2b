"""`tenure history NAME`: all that happened to a node, step by step; `tenure history export`: kept beyond Temporal.

`tenure history export`: histories of lives that ended, before Temporal lets them go. Safe to repeat.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError
from typer.core import TyperGroup

from tenure.cli.exit_codes import FAILED, UsageError
from tenure.cli.nodes.events import parse_span
from tenure.cli.nodes.timeline import HistoryEntry, format_time, list_history_entries
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import Output, format_columns, print_result
from tenure.cli.temporal_client import Connection, with_connection


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def has(self, name: str) -> bool:
        return (self._path / name).exists()

    def put(self, name: str, text: str) -> None:
        """Whole or not at all: what is cut off is written again by the next run."""
        file = self._path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(text)
        part.replace(file)


def open_folder(to: str) -> Folder:
    """Raises UsageError for a URL."""
    if "://" in to:
        raise UsageError(f"history export: --to: {to!r} is a URL, expected a folder, e.g. ./histories")
    return Folder(Path(to))


AT_ONCE = 8


@dataclass(frozen=True)
class ExportResult:
    written: tuple[str, ...] = ()
    there: int = 0
    """That an earlier run wrote."""
    failed: tuple[str, ...] = ()
    """A line each: which, and why."""


def archive_name(execution: WorkflowExecution) -> str:
    """A run each: a life that was continued has several."""
    return f"{execution.id}/{execution.run_id}.json"


async def export_histories(client: Client, cluster: str, to: Folder, after: datetime | None) -> ExportResult:
    """Lives that ended since then, or all that Temporal still has. One that fails does not keep the others."""
    closed = "ExecutionStatus != 'Running'"
    if after:
        closed += f" AND CloseTime >= '{after.isoformat()}'"
    found = await NodeClaimVisibility(client, cluster).list_runs(closed)
    limit = asyncio.Semaphore(AT_ONCE)

    async def export_run(execution: WorkflowExecution) -> ExportResult:
        name = archive_name(execution)
        async with limit:
            try:
                if await asyncio.to_thread(to.has, name):
                    return ExportResult(there=1)
                handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
                history = await handle.fetch_history()
                await asyncio.to_thread(to.put, name, history.to_json())
            except (RPCError, OSError, ValueError) as error:
                return ExportResult(failed=(f"{name}: {getattr(error, 'message', None) or error}",))
            return ExportResult(written=(name,))

    done = await asyncio.gather(*map(export_run, found))
    return ExportResult(
        written=tuple(name for part in done for name in part.written),
        there=sum(part.there for part in done),
        failed=tuple(line for part in done for line in part.failed),
    )


class _NameFirst(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is no command's name is a node's."""
        return super().resolve_command(ctx, args if args and args[0] in self.commands else ["show", *args])


app = typer.Typer(
    cls=_NameFirst, add_completion=False, no_args_is_help=True, context_settings={"ignore_unknown_options": True}
)
Name = Annotated[str, typer.Argument(help="A NodeClaim, Node or instance, or the id of any workflow of the cluster.")]
To = Annotated[str, typer.Option("--to", help="A folder.")]
Since = Annotated[str, typer.Option("--since", help="Those that ended since then, such as 48h; all without it.")]


@app.callback()
def history() -> None:
    """All that happened to a node (`tenure history NAME`), or to files before Temporal forgets it
    (`export_histories`)."""


@app.command()
@with_connection
def show(connection: Connection, name: Name, output: Output = "table") -> None:
    """Tell step by step what happened: phases, activities with how they ended, waits, signals, what people said."""
    found = asyncio.run(read(connection, name))
    steps = [{"workflow": workflow, "events": [one.as_json() for one in events]} for workflow, events in found]
    print_result(output, steps, "\n\n".join(format_history(workflow, events) for workflow, events in found))


@app.command("export")
@with_connection
def export_all(connection: Connection, to: To, since: Since = "", output: Output = "table") -> int:
    """Write the histories of nodes that are gone, as JSON that Temporal's UI and replayer read. Safe to repeat: what is
    there is not written again. Exit code 1 when one could not be written."""
    after = datetime.now(UTC) - parse_span(since, "history export") if since else None
    done = asyncio.run(_connect_and_export(connection, to, after))
    data = {"written": list(done.written), "there": done.there, "failed": list(done.failed)}
    print_result(output, data, format_summary(done, to))
    return FAILED if done.failed else 0


def format_summary(done: ExportResult, to: str) -> str:
    failed = [f"failed: {line}" for line in done.failed]
    next_ = "; run it again when that is mended" if failed else ""
    counts = f"{len(done.written)} written to {to}, {done.there} were there, {len(failed)} failed{next_}"
    return "\n".join([*failed, counts])


async def _connect_and_export(connection: Connection, to: str, after: datetime | None) -> ExportResult:
    return await export_histories(await connection.connect(), connection.cluster, open_folder(to), after)


async def read(connection: Connection, name: str) -> list[tuple[str, list[HistoryEntry]]]:
    """By workflow, all runs of it together. Raises `Refused` where nothing has that name."""
    client = await connection.connect()
    runs = await _list_runs(client, connection.cluster, name)
    if not runs:
        hint = "`tenure get` lists the nodes; one that is long gone may be in what `tenure history export` wrote"
        raise UsageError(f"history {name}: no node or workflow of this name in cluster {connection.cluster}; {hint}")
    found: dict[str, list[HistoryEntry]] = {}
    for workflow, run in runs:
        events = (await client.get_workflow_handle(workflow, run_id=run).fetch_history()).events
        found.setdefault(workflow, []).extend(list_history_entries(connection.decrypt_events(events)))
    return list(found.items())


async def _list_runs(client: Client, cluster: str, name: str) -> Sequence[tuple[str, str]]:
    """Ids of workflows and their runs, oldest first."""
    if "'" in name:
        return ()
    workflow_ids = {one.workflow_id for one in await NodeClaimVisibility(client, cluster).find_by_names([name])}
    if name.startswith(f"{cluster}/"):
        workflow_ids.add(name)
    runs = []
    for workflow in sorted(workflow_ids):
        runs += [one async for one in client.list_workflows(f"WorkflowId = '{workflow}'", page_size=1000)]
    return [(one.id, one.run_id) for one in sorted(runs, key=lambda one: one.start_time)]


def format_history(workflow: str, events: Sequence[HistoryEntry]) -> str:
    rows = [(format_time(one.at), one.kind, one.text) for one in events]
    return f"{workflow}\n{format_columns(('at', 'kind', 'what'), rows)}"
