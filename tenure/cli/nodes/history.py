"""`tenure history NAME`: everything that happened to a node, step by step.

`tenure history export` copies histories of deleted nodes to a folder before Temporal's retention ends.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from tenure.cli.command import CommandGroup, parse_length
from tenure.cli.exit_codes import DONE, FAILED, UsageError
from tenure.cli.nodes.timeline import HistoryEntry, format_time, list_history_entries
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import Result, format_columns
from tenure.cli.temporal_client import Connection, temporal_command

MAX_CONCURRENT: Final = 8


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def has(self, name: str) -> bool:
        return (self._path / name).exists()

    def put(self, name: str, text: str) -> None:
        """Atomic, so that the next run repeats an interrupted write."""
        file = self._path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(text)
        part.replace(file)


def open_folder(to: str) -> Folder:
    """Raises `UsageError` for a URL."""
    if "://" in to:
        raise UsageError(f"history export: --to: {to!r} is a URL, expected a folder, e.g. ./histories")
    return Folder(Path(to))


@dataclass(frozen=True)
class ExportResult:
    written: tuple[str, ...] = ()
    there: int = 0
    """Number of runs that an earlier export wrote."""
    failed: tuple[str, ...] = ()
    """One line per failure: name and reason."""


async def export_histories(client: Client, cluster: str, to: Folder, after: datetime | None) -> ExportResult:
    """Export nodes deleted since `after`, or all that Temporal still keeps. A failure does not stop the others."""
    closed = "ExecutionStatus != 'Running'"
    if after:
        closed += f" AND CloseTime >= '{after.isoformat()}'"
    found = await NodeClaimVisibility(client, cluster).list_runs(closed)
    limit = asyncio.Semaphore(MAX_CONCURRENT)

    async def export_run(execution: WorkflowExecution) -> ExportResult:
        name = f"{execution.id}/{execution.run_id}.json"
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


class _NameFirst(CommandGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A word that is not a subcommand is the name of a node."""
        return super().resolve_command(ctx, args if args and args[0] in self.commands else ["show", *args])


app = typer.Typer(
    cls=_NameFirst,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"ignore_unknown_options": True},
)
Name = Annotated[str, typer.Argument(help="NodeClaim, Node or instance, or the ID of any workflow of the cluster.")]
To = Annotated[str, typer.Option("--to", help="Folder.")]
Since = Annotated[str, typer.Option("--since", help="Only nodes deleted within this period, e.g. 48h (default: all).")]


@app.callback()
def history() -> None:
    """Show everything that happened to a node (`tenure history NAME`), or save histories (`tenure history export`)."""


@app.command()
@temporal_command
async def show(connection: Connection, name: Name) -> Result:
    """List every step: phases, activities with their results, timers, signals and operator requests."""
    found = await read(connection, name)
    data = [{"workflow": workflow, "events": [one.as_json() for one in events]} for workflow, events in found]
    return Result(data, ["\n\n".join(format_history(workflow, events) for workflow, events in found)])


@app.command("export")
@temporal_command
async def export_all(connection: Connection, to: To, since: Since = "") -> Result:
    """Write the histories of deleted nodes as JSON that Temporal's UI and replayer read. Safe to repeat: files that
    exist are not written again. Exit code 1 if a file could not be written."""
    after = datetime.now(UTC) - parse_length("history export: --since", since, "48h", zero=False) if since else None
    folder = open_folder(to)
    done = await export_histories(await connection.connect_to_cluster(), connection.cluster, folder, after)
    data = {"written": list(done.written), "there": done.there, "failed": list(done.failed)}
    return Result(data, [format_summary(done, to)], FAILED if done.failed else DONE)


def format_summary(done: ExportResult, to: str) -> str:
    failed = [f"failed: {line}" for line in done.failed]
    next_ = "; fix the cause and run the command again" if failed else ""
    counts = f"{len(done.written)} written to {to}, {done.there} already existed, {len(failed)} failed{next_}"
    return "\n".join([*failed, counts])


async def read(connection: Connection, name: str) -> list[tuple[str, list[HistoryEntry]]]:
    """By workflow, with all its runs. Raises `UsageError` for an unknown name."""
    client = await connection.connect_to_cluster()
    runs = await _list_runs(client, connection.cluster, name)
    if not runs:
        hint = "`tenure get` lists the nodes; `tenure history export` may have saved older ones"
        raise UsageError(f"history {name}: no node or workflow of this name in cluster {connection.cluster}; {hint}")
    found: dict[str, list[HistoryEntry]] = {}
    for workflow, run in runs:
        events = (await client.get_workflow_handle(workflow, run_id=run).fetch_history()).events
        found.setdefault(workflow, []).extend(list_history_entries(connection.decrypt_events(events)))
    return list(found.items())


async def _list_runs(client: Client, cluster: str, name: str) -> Sequence[tuple[str, str]]:
    """Workflow and run IDs, oldest first."""
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
    return f"{workflow}\n{format_columns(('at', 'kind', 'event'), rows)}"
