"""`tenure history NAME`: all that happened to a node, step by step; `tenure history export`: kept beyond Temporal.

`tenure history export`: histories of lives that ended, before Temporal lets them go. Safe to repeat.

Where histories are kept when Temporal lets them go: a folder, or a prefix in a bucket of S3.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError
from typer.core import TyperGroup

from tenure.aws.client.s3_archive import Bucket
from tenure.cli.exit_codes import FAILED, Refused
from tenure.cli.nodes.events import span_of
from tenure.cli.nodes.timeline import Happened, happened, moment_of
from tenure.cli.nodes.workflows import Lives
from tenure.cli.output import Output, answer, columns
from tenure.cli.temporal_client import Connection, connected
from tenure.model.errors import Fault

S3 = "s3://"


class Archive(Protocol):
    def has(self, name: str) -> bool: ...

    def put(self, name: str, text: str) -> None: ...


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


def archive(to: str) -> Archive:
    """Raises `Refused` for what is neither."""
    if not to.startswith(S3):
        if "://" in to:
            raise Refused(f"history export: --to {to}: write a folder, or s3://bucket/prefix")
        return Folder(Path(to))
    bucket, _, prefix = to.removeprefix(S3).partition("/")
    if not bucket:
        raise Refused(f"history export: --to {to}: which bucket? Write s3://bucket/prefix")
    return Bucket(bucket, prefix)


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


class _NameFirst(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is no command's name is a node's."""
        return super().resolve_command(ctx, args if args and args[0] in self.commands else ["show", *args])


app = typer.Typer(
    cls=_NameFirst, add_completion=False, no_args_is_help=True, context_settings={"ignore_unknown_options": True}
)
Name = Annotated[str, typer.Argument(help="A NodeClaim, Node or instance, or the id of any workflow of the cluster.")]
To = Annotated[str, typer.Option("--to", help="A folder, or s3://bucket/prefix.")]
Since = Annotated[str, typer.Option("--since", help="Those that ended since then, such as 48h; all without it.")]


@app.callback()
def history() -> None:
    """All that happened to a node (`tenure history NAME`), or to files before Temporal forgets it (`export`)."""


@app.command()
@connected
def show(connection: Connection, name: Name, output: Output = "table") -> None:
    """Tell step by step what happened: phases, activities with how they ended, waits, signals, what people said."""
    found = asyncio.run(read(connection, name))
    steps = [{"workflow": workflow, "events": [one.as_json() for one in events]} for workflow, events in found]
    answer(output, steps, "\n\n".join(text_of(workflow, events) for workflow, events in found))


@app.command("export")
@connected
def export_all(connection: Connection, to: To, since: Since = "", output: Output = "table") -> int:
    """Write the histories of nodes that are gone, as JSON that Temporal's UI and replayer read. Safe to repeat: what is
    there is not written again. Exit code 1 when one could not be written."""
    after = datetime.now(UTC) - span_of(since, "history export") if since else None
    done = asyncio.run(_export(connection, to, after))
    data = {"written": list(done.written), "there": done.there, "failed": list(done.failed)}
    answer(output, data, summary(done, to))
    return FAILED if done.failed else 0


def summary(done: Exported, to: str) -> str:
    failed = [f"failed: {line}" for line in done.failed]
    next_ = "; run it again when that is mended" if failed else ""
    counts = f"{len(done.written)} written to {to}, {done.there} were there, {len(failed)} failed{next_}"
    return "\n".join([*failed, counts])


async def _export(connection: Connection, to: str, after: datetime | None) -> Exported:
    return await export(await connection.client(), connection.cluster, archive(to), after)


async def read(connection: Connection, name: str) -> list[tuple[str, list[Happened]]]:
    """By workflow, all runs of it together. Raises `Refused` where nothing has that name."""
    client = await connection.client()
    runs = await _runs(client, connection.cluster, name)
    if not runs:
        hint = "`tenure get` lists the nodes; one that is long gone may be in what `tenure history export` wrote"
        raise Refused(f"history {name}: no node or workflow of this name in cluster {connection.cluster}; {hint}")
    found: dict[str, list[Happened]] = {}
    for workflow, run in runs:
        events = (await client.get_workflow_handle(workflow, run_id=run).fetch_history()).events
        found.setdefault(workflow, []).extend(happened(connection.read(events)))
    return list(found.items())


async def _runs(client: Client, cluster: str, name: str) -> Sequence[tuple[str, str]]:
    """Ids of workflows and their runs, oldest first."""
    if "'" in name:
        return ()
    wanted = {one.workflow_id for one in await Lives(client, cluster).named([name])}
    if name.startswith(f"{cluster}/"):
        wanted.add(name)
    runs = []
    for workflow in sorted(wanted):
        runs += [one async for one in client.list_workflows(f"WorkflowId = '{workflow}'", page_size=1000)]
    return [(one.id, one.run_id) for one in sorted(runs, key=lambda one: one.start_time)]


def text_of(workflow: str, events: Sequence[Happened]) -> str:
    rows = [(moment_of(one.at), one.kind, one.said) for one in events]
    return f"{workflow}\n{columns(('at', 'kind', 'what'), rows)}"
