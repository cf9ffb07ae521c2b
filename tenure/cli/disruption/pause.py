"""`tenure pause` and `tenure resume`: hold voluntary disruption of the cluster, a NodePool or a node, and let it go on.

Both are updates of the workflow, which answers. Where no worker is there to answer it is sent as a signal, which counts
as soon as there is one.
"""

import asyncio
import getpass
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer
from temporalio.client import Client, WorkflowHandle

from tenure.apis.durations import DurationError, parse_duration
from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.workflows import Lives
from tenure.cli.output import Output, said
from tenure.cli.temporal_client import Connection, connected
from tenure.cli.temporal_updates import Unanswered, Unknown, told
from tenure.model.signals import Pause, Resume
from tenure.policy.lifecycle.pauses import problem_of
from workflows import ids

pausing = typer.Typer(add_completion=False)
resuming = typer.Typer(add_completion=False)
Whole = Annotated[bool, typer.Option("--cluster", help="The whole cluster.")]
Pool = Annotated[str, typer.Option("--nodepool", help="This NodePool.")]
Node = Annotated[str, typer.Option("--node", help="This node: its name, that of its NodeClaim, or its instance id.")]
Lasting = Annotated[str, typer.Option("--for", help="For how long, such as 2h.")]
Until = Annotated[str, typer.Option("--until", help="Until when, such as 2026-06-01T18:00:00Z.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; shown wherever something waits for the end.")]
By = Annotated[str, typer.Option("--by", help="Who; unset: you, on this machine.")]


@dataclass(frozen=True)
class Target:
    """What is paused; exactly one of these."""

    whole: bool = False
    pool: str = ""
    node: str = ""

    def check(self, verb: str) -> None:
        """Raises `Refused`."""
        if sum((self.whole, bool(self.pool), bool(self.node))) != 1:
            raise Refused(f"{verb}: what? Give one of --cluster, --nodepool NAME and --node NAME")


@pausing.command()
@connected
def pause(
    connection: Connection,
    cluster: Whole = False,
    nodepool: Pool = "",
    node: Node = "",
    lasting: Lasting = "",
    until: Until = "",
    reason: Reason = "",
    by: By = "",
    output: Output = "table",
) -> None:
    """Hold voluntary disruption for a while. Launches, drains that have begun, and repair go on."""
    target = Target(cluster, nodepool, node)
    target.check("pause")
    wanted = wanted_pause(lasting, until, reason, by or myself(), datetime.now(UTC))
    said(output, asyncio.run(tell(connection, target, "pause", wanted)))


@resuming.command()
@connected
def resume(
    connection: Connection,
    cluster: Whole = False,
    nodepool: Pool = "",
    node: Node = "",
    by: By = "",
    output: Output = "table",
) -> None:
    """Let voluntary disruption go on that was paused."""
    target = Target(cluster, nodepool, node)
    target.check("resume")
    wanted = Resume(by=by or myself())
    said(output, asyncio.run(tell(connection, target, "resume", wanted)))


def wanted_pause(lasting: str, until: str, reason: str, by: str, now: datetime) -> Pause:
    """Raises `Refused` with the option and what to write."""
    if bool(lasting) == bool(until):
        raise Refused("pause: until when? Give one of --for 2h and --until 2026-06-01T18:00:00Z")
    try:
        moment = now + (parse_duration(lasting) or timedelta(0)) if lasting else datetime.fromisoformat(until)
    except DurationError as error:
        raise Refused(f"--for: {error}") from error
    except (ValueError, OverflowError) as error:
        raise Refused(f"--until: {until!r} is no moment; write one such as 2026-06-01T18:00:00Z") from error
    wanted = Pause(by=by, reason=reason, until=moment)
    if wrong := problem_of(wanted, now):
        raise Refused(f"pause: --{wrong}")
    return wanted


def myself() -> str:
    """By number where the user has no name: the image's has none."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}".replace(",", " ")


async def tell(connection: Connection, target: Target, verb: Literal["pause", "resume"], wanted: Pause | Resume) -> str:
    """The answer. Raises `Refused` where there is nothing of this name, or it says no."""
    client = await connection.client()
    workflow_id = await _workflow_of(client, connection.cluster, target)
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(workflow_id)
    try:
        return (await told(handle, verb, wanted, about=verb)).message
    except Unanswered as late:
        await handle.signal(f"{verb}_disruption", wanted)
        return f"no worker answers {late}; it was sent as a signal and counts as soon as one does"
    except Unknown as unknown:
        what = f"--nodepool {target.pool}" if target.pool else "--cluster" if target.whole else f"--node {target.node}"
        why = f"no workflow {workflow_id} runs; is the name right, and --cluster-name, and does a worker run?"
        raise Refused(f"{what}: {why}") from unknown


async def _workflow_of(client: Client, cluster: str, target: Target) -> str:
    if target.whole:
        return ids.cluster(cluster)
    if target.pool:
        return ids.nodepool(cluster, target.pool)
    found = await Lives(client, cluster).called(target.node)
    if found is None:
        gone = f"no NodeClaim, Node or instance of this name runs in cluster {cluster}"
        raise Refused(f"--node {target.node}: {gone}; `tenure get` lists those that do")
    return found.workflow_id
