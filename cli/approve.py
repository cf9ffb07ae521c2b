"""`tenure approve NAME`, `tenure reject NAME`: what a person says of a roll-out's wave, or of what AWS does to a node.

A node is named by its NodeClaim, its Node or its instance. Any other name is a plan's, and begins with its NodePool's.
The workflow of either is told by an update: it answers, or says why not.
"""

import asyncio
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowHandle

from cli.connection import Connection, connected
from cli.exits import Refused
from cli.lives import Lives
from cli.output import Output, said
from cli.telling import answered
from model.remembered import ApproveEvent, RejectEvent
from model.rollouts import ApproveRollout, RejectRollout
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
