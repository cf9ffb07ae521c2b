"""`tenure approve NAME`, `tenure reject NAME`: what a person says of a roll-out's wave, or of what AWS does to a node.

A node is named by its NodeClaim, its Node or its instance. Any other name is a plan's, and begins with its NodePool's.
The workflow of either is told by an update: it answers, or says why not.

`tenure give-up COMMAND`: undo a command of voluntary disruption, and leave its nodes alone for a while.

The command's workflow is told by an update: it answers, or says why not. `tenure stuck` and the Cluster workflow's page
name commands; so does the condition `DisruptionReason` of their NodeClaims.
"""

import asyncio
from datetime import timedelta
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowHandle

from tenure.apis.durations import DurationError, parse_duration
from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.workflows import Lives
from tenure.cli.output import Output, said
from tenure.cli.temporal_client import Connection, connected
from tenure.cli.temporal_updates import answered
from tenure.model.disruption.commands import GiveUp
from tenure.model.interruption.records import ApproveEvent, RejectEvent
from tenure.model.rollout import ApproveRollout, RejectRollout
from workflows import ids

app = typer.Typer(add_completion=False)
rejecting = typer.Typer(add_completion=False)

Name = Annotated[
    str,
    typer.Argument(help="A node, or a plan as an event of its NodePool names it, such as web-3f2a9c."),
]
By = Annotated[str, typer.Option("--by", envvar="USER", help="Who says so.")]
Reason = Annotated[str, typer.Option("--reason", help="Written down with it.")]


@app.command()
@connected
def approve(
    connection: Connection,
    name: Name,
    by: By = "",
    reason: Reason = "",
    output: Output = "table",
) -> None:
    """Let a wave of a roll-out begin, one that has halted go on, or a node go that AWS says something of."""
    plan, event = ApproveRollout(plan=name, by=by, reason=reason), ApproveEvent(by=by, reason=reason)
    said(output, asyncio.run(_connected(connection, name, plan, event)))


@rejecting.command()
@connected
def reject(
    connection: Connection,
    name: Name,
    by: By = "",
    reason: Reason = "",
    roll_back: Annotated[bool, typer.Option("--roll-back", help="Of a plan: take the last good image again.")] = False,
    output: Output = "table",
) -> None:
    """Stop a roll-out: nodes that are on their way arrive, no further one goes. Or keep a node that AWS says something
    of, for as long as its policy lets that be."""
    plan = RejectRollout(plan=name, by=by, reason=reason, roll_back=roll_back)
    event = RejectEvent(by=by, reason=reason)
    said(output, asyncio.run(_connected(connection, name, plan, event)))


async def _connected(
    connection: Connection, name: str, plan: ApproveRollout | RejectRollout, event: ApproveEvent | RejectEvent
) -> str:
    client, cluster = await connection.client(), connection.cluster
    life = await Lives(client, cluster).called(name)
    return await tell_node(client, life.workflow_id, name, event) if life else await tell(client, cluster, plan)


async def tell_node(client: Client, workflow_id: str, name: str, said: ApproveEvent | RejectEvent) -> str:
    """What the NodeClaim's workflow answers. Raises `Refused` with its reason."""
    verb = "approve" if isinstance(said, ApproveEvent) else "reject"
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(workflow_id)
    absent = f"no node {name} lives any more; `tenure why {name}` tells how it ended"
    return await answered(handle, f"{verb}_event", said, about=f"{verb} {name}", absent=absent)


async def tell(client: Client, cluster: str, said: ApproveRollout | RejectRollout) -> str:
    """What the NodePool's workflow answers. Raises `Refused` with its reason, or where there is none."""
    verb = "approve" if isinstance(said, ApproveRollout) else "reject"
    about = f"{verb} {said.plan}"
    pool, dash, _ = said.plan.rpartition("-")
    if not dash:
        raise Refused(f"{about}: that is no plan; write its whole name, such as web-3f2a9c")
    named = "an event of its NodePool names a plan, `tenure get` lists the nodes"
    absent = f"there is no NodePool {pool} in cluster {cluster}; {named}"
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(ids.nodepool(cluster, pool))
    return await answered(handle, verb, said, about=about, absent=absent)


give_up_app = typer.Typer(add_completion=False)
Which = Annotated[str, typer.Argument(help="The command: the id of its workflow, or the last part of that.")]
GiveUpBy = Annotated[str, typer.Option("--by", envvar="USER", help="Who says so.")]
GiveUpReason = Annotated[str, typer.Option("--reason", help="Why; shown on its nodes.")]
Keep = Annotated[str, typer.Option("--keep", help="For how long its nodes are left alone, such as 4h.")]


@give_up_app.command()
@connected
def give_up(
    connection: Connection,
    command: Which,
    by: GiveUpBy = "",
    reason: GiveUpReason = "",
    keep: Keep = "",
    output: Output = "table",
) -> None:
    """Undo a command of voluntary disruption: its nodes stay, its replacements go unless pods run there."""
    wanted = GiveUp(by=by, reason=reason, keep=kept(command, keep))
    said(output, asyncio.run(_give_up_connected(connection, command, wanted)))


def kept(command: str, text: str) -> timedelta:
    """Raises `Refused` for what is no length of time."""
    try:
        found = parse_duration(text) if text else timedelta(0)
    except DurationError as error:
        raise Refused(f"give-up {command}: --keep: {error}") from error
    if found is None:
        raise Refused(f"give-up {command}: --keep: {text!r} has no end; write such as 4h, or pause the NodePool")
    return found


async def _give_up_connected(connection: Connection, command: str, said: GiveUp) -> str:
    return await give_up_tell(await connection.client(), connection.cluster, command, said)


async def give_up_tell(client: Client, cluster: str, command: str, said: GiveUp) -> str:
    """What the command's workflow answers. Raises `Refused` with its reason, or where there is none."""
    name = command.rpartition("/")[2]
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(ids.disruption(cluster, name))
    named = "the condition DisruptionReason of NodeClaims names those that are, `tenure stuck` those that are late"
    absent = f"no command {name} is being carried out in cluster {cluster}; {named}"
    return await answered(handle, "give_up", said, about=f"give-up {name}", absent=absent)
