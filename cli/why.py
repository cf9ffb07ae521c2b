"""`tenure why NAME`: one node's story, also after it is gone, and what keeps it; or why a pod keeps its node.

The name is that of a NodeClaim, of a Node, of an instance, or of a pod: `namespace/name`, or the name alone.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from cli.connection import Address, ClusterName, Connection, Namespace
from cli.exits import Refused
from cli.lives import Lives, NodeLife
from cli.paused import around
from cli.shown import ask, lines_of
from model.lifecycle import ClaimState, Step
from policy.expiry import expiry_of
from policy.pauses import words
from workflows.details import absent, draining, drifted

app = typer.Typer()


@app.command()
def why(
    name: str, address: Address = "127.0.0.1:7233", namespace: Namespace = "default", cluster_name: ClusterName = ""
) -> None:
    """Say what a node is doing, since when, until when, what blocks it, how it came there, and why it stays; or why a
    pod keeps its node."""
    typer.echo(asyncio.run(tell(Connection(address, namespace, cluster_name), name)))


async def tell(connection: Connection, name: str) -> str:
    """Raises `Refused` when no node ever had that name, and no pod has it."""
    client = await connection.client()
    lives = Lives(client, connection.cluster)
    found = [life for life in await lives.all() if name in (life.name, life.node_name, life.instance_id)]
    if not found:
        return await _pod(client, connection.cluster, name)
    return "\n\n".join([await _one(client, lives, connection.cluster, life) for life in found])


async def _pod(client: Client, cluster: str, name: str) -> str:
    """Why a pod keeps its node."""
    answer = await ask(client, cluster, name)
    if not answer.pod:
        unsure = f"; whether a pod has it is not known: {answer.blocked}" if answer.blocked else ", and no pod"
        raise Refused(f"why {name}: no NodeClaim, Node or instance of this name in cluster {cluster}{unsure}")
    node = f" · node {answer.verdicts[0].node}" if answer.verdicts else ""
    return "\n".join([f"Pod {answer.pod}{node}", *(f"  {line}" for line in lines_of(answer))])


async def _one(client: Client, lives: Lives, cluster: str, life: NodeLife) -> str:
    if not life.open:
        outcome = await lives.outcome(life)
        return story(life, outcome.story, reason=outcome.reason, bought_for=outcome.why)
    try:
        state = await client.get_workflow_handle(life.workflow_id).query("state", result_type=ClaimState)
    except RPCError as unanswered:
        return story(life, (), note=f"its story needs a worker, and none answers: {unanswered.message}")
    return story(
        life,
        state.story,
        drift=drifted(state),
        drain=draining(state),
        bought_for=state.identity.why,
        expires=expiry_of(state),
        away=absent(state),
        disruption=lines_of(await ask(client, cluster, life.name)),
        paused=(*((words(state.pause),) if state.pause else ()), *await around(client, state.identity)),
    )


def story(
    life: NodeLife,
    steps: tuple[Step, ...],
    *,
    reason: str = "",
    note: str = "",
    drift: str = "",
    drain: tuple[str, ...] = (),
    expires: datetime | None = None,
    bought_for: str = "",
    away: str = "",
    disruption: Sequence[str] = (),
    paused: tuple[str, ...] = (),
) -> str:
    """The node as lines of text: what is so now, then how it came to be."""
    place = " ".join(part for part in (life.instance_type, life.capacity_type, life.zone) if part)
    lines = [
        f"NodeClaim {life.name}" + (f" · node {life.node_name}" if life.node_name else ""),
        f"  instance    {life.instance_id or 'none'} {place}".rstrip(),
        f"  phase       {life.phase}" + (" (overdue)" if life.overdue else ""),
        f"  since       {_moment(life.since)}",
    ]
    if bought_for:
        lines.append(f"  bought for  {bought_for}")
    if life.deadline:
        lines.append(f"  deadline    {_moment(life.deadline)}")
    if life.blocked_by:
        lines.append(f"  blocked by  {life.blocked_by}")
    lines += [f"  paused      {line}" for line in paused]
    lines += [f"  drain       {line}" for line in drain]
    if drift:
        lines.append(f"  drifted     {drift}")
    if away:
        lines.append(f"  away        {away}")
    if expires:
        lines.append(f"  expires     {_moment(expires)}")
    lines += [f"  disruption  {line}" for line in disruption]
    if reason:
        lines.append(f"  went for    {reason}")
    if note:
        lines.append(f"  note        {note}")
    lines += [f"  {_moment(step.at)}  {step.phase.value:<14}  {step.cause}".rstrip() for step in steps]
    return "\n".join(lines)


def _moment(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "-"
