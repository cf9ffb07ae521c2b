"""`tenure give-up COMMAND`: undo a command of voluntary disruption, and leave its nodes alone for a while.

The command's workflow is told by an update: it answers, or says why not. `tenure stuck` and the Cluster workflow's page
name commands; so does the condition `DisruptionReason` of their NodeClaims.
"""

import asyncio
from datetime import timedelta
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowHandle

from cli.connection import Connection, connected
from cli.exits import Refused
from cli.output import Output, said
from cli.telling import answered
from model.commands import GiveUp
from model.durations import DurationError, parse_duration
from workflows import ids

app = typer.Typer(add_completion=False)
Which = Annotated[str, typer.Argument(help="The command: the id of its workflow, or the last part of that.")]
By = Annotated[str, typer.Option("--by", envvar="USER", help="Who says so.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; shown on its nodes.")]
Keep = Annotated[str, typer.Option("--keep", help="For how long its nodes are left alone, such as 4h.")]


@app.command()
@connected
def give_up(
    connection: Connection,
    command: Which,
    by: By = "",
    reason: Reason = "",
    keep: Keep = "",
    output: Output = "table",
) -> None:
    """Undo a command of voluntary disruption: its nodes stay, its replacements go unless pods run there."""
    wanted = GiveUp(by=by, reason=reason, keep=kept(command, keep))
    said(output, asyncio.run(_connected(connection, command, wanted)))


def kept(command: str, text: str) -> timedelta:
    """Raises `Refused` for what is no length of time."""
    try:
        found = parse_duration(text) if text else timedelta(0)
    except DurationError as error:
        raise Refused(f"give-up {command}: --keep: {error}") from error
    if found is None:
        raise Refused(f"give-up {command}: --keep: {text!r} has no end; write such as 4h, or pause the NodePool")
    return found


async def _connected(connection: Connection, command: str, said: GiveUp) -> str:
    return await tell(await connection.client(), connection.cluster, command, said)


async def tell(client: Client, cluster: str, command: str, said: GiveUp) -> str:
    """What the command's workflow answers. Raises `Refused` with its reason, or where there is none."""
    name = command.rpartition("/")[2]
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(ids.disruption(cluster, name))
    named = "the condition DisruptionReason of NodeClaims names those that are, `tenure stuck` those that are late"
    absent = f"no command {name} is being carried out in cluster {cluster}; {named}"
    return await answered(handle, "give_up", said, about=f"give-up {name}", absent=absent)
