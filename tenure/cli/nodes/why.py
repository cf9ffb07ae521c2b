"""`tenure why NAME`: one node's story, also after it is gone, and what keeps it; or why a pod keeps its node.

The name is that of a NodeClaim, of a Node, of an instance, or of a pod: `namespace/name`, or the name alone.

What the worker says of voluntary disruption, asked for `tenure plan` and `tenure why`, and told as text.
"""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.exported_histories import stories
from tenure.cli.nodes.timeline import Call, Story, calls, ended
from tenure.cli.nodes.workflows import Lives, NodeLife
from tenure.cli.output import Output, answer
from tenure.cli.temporal_client import Connection, connected
from tenure.controller.temporal.errors import refusal
from tenure.model.disruption.planning import NodeVerdict
from tenure.model.nodeclaim_history import Told
from tenure.model.operator_requests import ShowAsked, Shown
from workflows import ids

PATIENCE: Final = timedelta(seconds=30)


async def ask(client: Client, cluster: str, name: str = "") -> Shown:
    """`blocked` says why there is no answer."""
    try:
        answer: Shown = await client.execute_workflow(
            "ShowWorkflow",
            ShowAsked(cluster=cluster, name=name),
            id=ids.show(cluster, uuid.uuid4().hex[:8]),
            task_queue=ids.task_queue(cluster),
            execution_timeout=PATIENCE,
            result_type=Shown,
        )
    except WorkflowFailureError as error:
        cause = getattr(error.cause, "cause", None) or error.cause
        return Shown(blocked=f"no worker answers: {cause}; `tenure doctor` says whether one runs")
    except RPCError as error:
        address = client.service_client.config.target_host
        return Shown(blocked=refusal(error, namespace=client.namespace, address=address))
    return answer


def lines_of(found: Shown) -> list[str]:
    """What keeps a node or a pod where it is, or what would become of it."""
    if found.blocked:
        return [f"not known now: {found.blocked}"]
    return [*found.said, *_would(found), *(line for one in found.verdicts for line in _verdict(one))]


def _would(found: Shown) -> Iterator[str]:
    for one in found.commands:
        yield f"would go now ({one.reason}): {one.why}"


def _verdict(one: NodeVerdict) -> Iterator[str]:
    """All that keeps it, so that whoever removes one obstacle knows the next."""
    for said in one.excluded:
        yield f"stays ({said.cause}; not for {', '.join(said.methods)}): {said.words}"
    if one.eligible:
        yield f"could go as {', '.join(one.eligible)}"
    yield from (f"stays all the same: {words}" for words in one.rejected)


def as_json(found: Shown) -> dict[str, Any]:
    return found.model_dump(mode="json", exclude_defaults=True)


app = typer.Typer(add_completion=False)
WHY_PATIENCE: Final = timedelta(seconds=2)
"""That a pause or the calls are worth: the story is told without them."""
AGAIN_IN: Final = (0.2, 0.5, 1.0)
"""Seconds."""

Kept = Annotated[Path | None, typer.Option("--from", help="A folder that `tenure history export` wrote.")]


@dataclass(frozen=True)
class Pod:
    """Why a pod keeps its node."""

    told: Shown

    def text(self) -> str:
        node = f" · node {self.told.verdicts[0].node}" if self.told.verdicts else ""
        return "\n".join([f"Pod {self.told.pod}{node}", *(f"  {line}" for line in lines_of(self.told))])

    def as_json(self) -> dict[str, Any]:
        return as_json(self.told)


@app.command()
@connected
def why(connection: Connection, name: str, kept: Kept = None, output: Output = "table") -> None:
    """Say what a node is doing, since when, until when, what blocks it, how it came there, and why it stays; or why a
    pod keeps its node."""
    found = stories(kept, name, connection.read) if kept else asyncio.run(find(connection, name))
    answer(output, [one.as_json() for one in found], text_of(found))


async def tell(connection: Connection, name: str) -> str:
    """What people read. Raises `Refused` when no node ever had that name, and no pod has it."""
    return text_of(await find(connection, name))


def text_of(found: Sequence[Story | Pod]) -> str:
    return "\n\n".join(one.text() for one in found)


async def find(connection: Connection, name: str) -> Sequence[Story | Pod]:
    """All nodes that ever had that name, oldest first. Raises `Refused` when there is none, and no pod has it."""
    client = await connection.client()
    found = await Lives(client, connection.cluster).named([name])
    if not found:
        return [await _pod(client, connection.cluster, name)]
    return await asyncio.gather(*(_one(connection, client, life) for life in found))


async def _pod(client: Client, cluster: str, name: str) -> Pod:
    told = await ask(client, cluster, name)
    if not told.pod:
        unsure = f"; whether a pod has it is not known: {told.blocked}" if told.blocked else ", and no pod"
        hint = "`tenure get` lists the nodes; one that is long gone may be in what `tenure history export` wrote"
        raise Refused(f"why {name}: no NodeClaim, Node or instance of this name in cluster {cluster}{unsure}; {hint}")
    return Pod(told)


async def _one(connection: Connection, client: Client, life: NodeLife) -> Story:
    tell = _goes_on if life.open else _over
    story, made = await asyncio.gather(tell(client, connection.cluster, life), _made(connection, client, life))
    return replace(story, calls=made)


async def _made(connection: Connection, client: Client, life: NodeLife) -> Sequence[Call]:
    """The calls of its last run; none where Temporal does not give its history out."""
    try:
        history = await client.get_workflow_handle(life.workflow_id).fetch_history(rpc_timeout=WHY_PATIENCE)
    except RPCError:
        return ()
    return calls(connection.read(history.events))


async def _goes_on(client: Client, cluster: str, life: NodeLife) -> Story:
    others = asyncio.gather(ask(client, cluster, life.name), _pauses(client, cluster, life.pool))
    told = await told_by(client, life)
    if isinstance(told, str):
        others.cancel()
        return Story(life, note=told)
    kept, pauses = await others
    return Story(
        life,
        told.steps,
        drift=told.drift,
        drain=told.drain,
        bought_for=told.bought_for,
        expires=told.expires,
        away=told.away,
        events=told.events,
        left=told.left,
        disruption=lines_of(kept),
        paused=(*filter(None, (told.paused,)), *pauses),
    )


async def told_by(client: Client, life: NodeLife) -> Told | str:
    """Or why nothing is told."""
    try:
        return await _asked(client.get_workflow_handle(life.workflow_id))
    except RPCError as unanswered:
        return f"its story needs a worker, and none answers: {unanswered.message}; start one, see `tenure doctor`"
    except WorkflowQueryFailedError as refused:
        return f"its worker does not tell its story: {refused}; it may be of an older version than this command"


async def _asked(handle: WorkflowHandle[Any, Any]) -> Told:
    """Asked again by a worker that has just started and hears of the node for the first time."""
    for pause in AGAIN_IN:
        try:
            told: Told = await handle.query("told", result_type=Told)
            return told
        except WorkflowQueryFailedError as refused:
            if "ask again" not in str(refused):
                raise
        await asyncio.sleep(pause)
    last: Told = await handle.query("told", result_type=Told)
    return last


async def _pauses(client: Client, cluster: str, pool: str) -> tuple[str, ...]:
    """Of a node's NodePool and of the cluster, a line each; none where nobody answers."""
    if not pool:
        return ()
    handle = client.get_workflow_handle(ids.nodepool(cluster, pool))
    try:
        return tuple(await handle.query("pauses", result_type=list[str], rpc_timeout=WHY_PATIENCE))
    except (RPCError, WorkflowQueryFailedError):
        return ()


async def _over(client: Client, cluster: str, life: NodeLife) -> Story:
    try:
        outcome = await Lives(client, cluster).outcome(life)
    except WorkflowFailureError as failed:
        return Story(life, note=f"its workflow did not end by itself ({life.status}): {failed.cause or failed}")
    return ended(life, outcome)
