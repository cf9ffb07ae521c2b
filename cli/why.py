"""`tenure why NAME`: one node's story, also after it is gone, and what keeps it; or why a pod keeps its node.

The name is that of a NodeClaim, of a Node, of an instance, or of a pod: `namespace/name`, or the name alone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from cli.connection import Connection, connected
from cli.exits import Failed, Refused
from cli.kept import stories
from cli.lives import Lives, NodeLife
from cli.output import Output, answer
from cli.paused import around
from cli.shown import as_json, ask, lines_of
from cli.story import Story
from model.lifecycle import ClaimState
from model.showing import Shown
from policy.expiry import expiry_of
from policy.pauses import words
from workflows.details import absent, announced, draining, drifted

app = typer.Typer(add_completion=False)

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
    lives = Lives(client, connection.cluster)
    try:
        found = await lives.named([name])
    except RPCError as error:
        raise Failed(f"why {name}: Temporal does not list workflows: {error.message}; see `tenure doctor`") from error
    if not found:
        return [await _pod(client, connection.cluster, name)]
    return await asyncio.gather(*(_one(client, lives, connection.cluster, life) for life in found))


async def _pod(client: Client, cluster: str, name: str) -> Pod:
    told = await ask(client, cluster, name)
    if not told.pod:
        unsure = f"; whether a pod has it is not known: {told.blocked}" if told.blocked else ", and no pod"
        hint = "`tenure get` lists the nodes; one that is long gone may be in what `tenure history export` wrote"
        raise Refused(f"why {name}: no NodeClaim, Node or instance of this name in cluster {cluster}{unsure}; {hint}")
    return Pod(told)


async def _one(client: Client, lives: Lives, cluster: str, life: NodeLife) -> Story:
    if not life.open:
        return await _over(lives, life)
    try:
        state = await client.get_workflow_handle(life.workflow_id).query("state", result_type=ClaimState)
    except RPCError as unanswered:
        said = f"its story needs a worker, and none answers: {unanswered.message}; start one, see `tenure doctor`"
        return Story(life, note=said)
    kept, pauses = await asyncio.gather(ask(client, cluster, life.name), around(client, state.identity))
    return Story(
        life,
        state.story,
        drift=drifted(state),
        drain=draining(state),
        bought_for=state.identity.why,
        expires=expiry_of(state),
        away=absent(state),
        events=announced(state),
        disruption=lines_of(kept),
        paused=(*((words(state.pause),) if state.pause else ()), *pauses),
    )


async def _over(lives: Lives, life: NodeLife) -> Story:
    try:
        outcome = await lives.outcome(life)
    except WorkflowFailureError as failed:
        return Story(life, note=f"its workflow did not end by itself ({life.status}): {failed.cause or failed}")
    return Story(life, outcome.story, reason=outcome.reason, bought_for=outcome.why)
