"""`tenure history NAME`: all that happened to a node, step by step; `tenure history export`: kept beyond Temporal."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from temporalio.client import Client
from typer.core import TyperGroup

from cli.archive import archive
from cli.columns import columns
from cli.connection import Connection, connected
from cli.events import span_of
from cli.exits import FAILED, Refused
from cli.export import Exported, export
from cli.happened import Happened, happened
from cli.lives import Lives
from cli.output import Output, answer
from cli.story import moment_of


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
