"""`tenure approve NAME`, `tenure reject NAME`: what a person says of a roll-out's wave, or of what AWS does to a node.

A node is named by its NodeClaim, its Node or its instance. Any other name is a plan's, and begins with its NodePool's.
The workflow of either is told by an update: it answers, or says why not.

`tenure cancel COMMAND`: undo a command of voluntary disruption, and leave its nodes alone for a while.

The command's workflow is told by an update: it answers, or says why not. `tenure stuck` and the Cluster workflow's page
name commands; so does the condition `DisruptionReason` of their NodeClaims.
"""

import asyncio
from datetime import timedelta
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowHandle

from tenure.apis.durations import DurationError, parse_duration
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import Output, print_message
from tenure.cli.temporal_client import Connection, with_connection
from tenure.cli.temporal_updates import send_update_for_message
from tenure.model.disruption.commands import CommandCancellation
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
@with_connection
def approve(
    connection: Connection,
    name: Name,
    by: By = "",
    reason: Reason = "",
    output: Output = "table",
) -> None:
    """Let a wave of a roll-out begin, one that has halted go on, or a node go that AWS says something of."""
    plan, event = ApproveRollout(plan=name, by=by, reason=reason), ApproveEvent(by=by, reason=reason)
    print_message(output, asyncio.run(_connect_and_decide(connection, name, plan, event)))


@rejecting.command()
@with_connection
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
    print_message(output, asyncio.run(_connect_and_decide(connection, name, plan, event)))


async def _connect_and_decide(
    connection: Connection, name: str, plan: ApproveRollout | RejectRollout, event: ApproveEvent | RejectEvent
) -> str:
    client, cluster = await connection.connect(), connection.cluster
    nodeclaim = await NodeClaimVisibility(client, cluster).find_running(name)
    return (
        await send_node_decision(client, nodeclaim.workflow_id, name, event)
        if nodeclaim
        else await send_rollout_decision(client, cluster, plan)
    )


async def send_node_decision(client: Client, workflow_id: str, name: str, decision: ApproveEvent | RejectEvent) -> str:
    """What the NodeClaim's workflow answers. Raises `Refused` with its reason."""
    verb = "approve" if isinstance(decision, ApproveEvent) else "reject"
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(workflow_id)
    absent = f"no node {name} lives any more; `tenure why {name}` tells how it ended"
    return await send_update_for_message(handle, f"{verb}_event", decision, about=f"{verb} {name}", absent=absent)


async def send_rollout_decision(client: Client, cluster: str, decision: ApproveRollout | RejectRollout) -> str:
    """What the NodePool's workflow answers. Raises `Refused` with its reason, or where there is none."""
    verb = "approve" if isinstance(decision, ApproveRollout) else "reject"
    about = f"{verb} {decision.plan}"
    pool, dash, _ = decision.plan.rpartition("-")
    if not dash:
        raise UsageError(f"{about}: that is no plan; write its whole name, such as web-3f2a9c")
    named = "an event of its NodePool names a plan, `tenure get` lists the nodes"
    absent = f"there is no NodePool {pool} in cluster {cluster}; {named}"
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(ids.nodepool(cluster, pool))
    return await send_update_for_message(handle, verb, decision, about=about, absent=absent)


cancel_app = typer.Typer(add_completion=False)
CommandName = Annotated[str, typer.Argument(help="The command: the id of its workflow, or the last part of that.")]
CancelBy = Annotated[str, typer.Option("--by", envvar="USER", help="Who says so.")]
CancelReason = Annotated[str, typer.Option("--reason", help="Why; shown on its nodes.")]
Cooldown = Annotated[str, typer.Option("--keep", help="For how long its nodes are left alone, such as 4h.")]


@cancel_app.command()
@with_connection
def cancel(
    connection: Connection,
    command: CommandName,
    by: CancelBy = "",
    reason: CancelReason = "",
    cooldown: Cooldown = "",
    output: Output = "table",
) -> None:
    """Undo a command of voluntary disruption: its nodes stay, its replacements go unless pods run there."""
    request = CommandCancellation(by=by, reason=reason, retain_for=parse_cooldown(command, cooldown))
    print_message(output, asyncio.run(_connect_and_cancel(connection, command, request)))


def parse_cooldown(command: str, text: str) -> timedelta:
    """Raises `Refused` for what is no length of time."""
    try:
        found = parse_duration(text) if text else timedelta(0)
    except DurationError as error:
        raise UsageError(f"cancel {command}: --keep: {error}") from error
    if found is None:
        raise UsageError(f"cancel {command}: --keep: {text!r} has no end; write such as 4h, or pause the NodePool")
    return found


async def _connect_and_cancel(connection: Connection, command: str, request: CommandCancellation) -> str:
    return await send_cancel(await connection.connect(), connection.cluster, command, request)


async def send_cancel(client: Client, cluster: str, command: str, request: CommandCancellation) -> str:
    """What the command's workflow answers. Raises `Refused` with its reason, or where there is none."""
    name = command.rpartition("/")[2]
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(ids.disruption(cluster, name))
    named = "the condition DisruptionReason of NodeClaims names those that are, `tenure stuck` those that are late"
    absent = f"no command {name} is being carried out in cluster {cluster}; {named}"
    return await send_update_for_message(handle, "cancel", request, about=f"cancel {name}", absent=absent)
