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
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import Output, print_message
from tenure.cli.temporal_client import Connection, with_connection
from tenure.cli.temporal_updates import NoResponse, WorkflowNotFound, send_update
from tenure.model.signals import Pause, Resume
from tenure.policy.lifecycle.pauses import problem_of
from workflows import ids

pausing = typer.Typer(add_completion=False)
resuming = typer.Typer(add_completion=False)
Cluster = Annotated[bool, typer.Option("--cluster", help="The whole cluster.")]
Pool = Annotated[str, typer.Option("--nodepool", help="This NodePool.")]
Node = Annotated[str, typer.Option("--node", help="This node: its name, that of its NodeClaim, or its instance id.")]
Duration = Annotated[str, typer.Option("--for", help="For how long, such as 2h.")]
Until = Annotated[str, typer.Option("--until", help="Until when, such as 2026-06-01T18:00:00Z.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; shown wherever something waits for the end.")]
By = Annotated[str, typer.Option("--by", help="Who; unset: you, on this machine.")]


@dataclass(frozen=True)
class Target:
    """What is paused; exactly one of these."""

    cluster: bool = False
    pool: str = ""
    node: str = ""

    def check(self, verb: str) -> None:
        """Raises `Refused`."""
        if sum((self.cluster, bool(self.pool), bool(self.node))) != 1:
            raise UsageError(f"{verb}: what? Give one of --cluster, --nodepool NAME and --node NAME")


@pausing.command()
@with_connection
def pause(
    connection: Connection,
    cluster: Cluster = False,
    nodepool: Pool = "",
    node: Node = "",
    duration: Duration = "",
    until: Until = "",
    reason: Reason = "",
    by: By = "",
    output: Output = "table",
) -> None:
    """Hold voluntary disruption for a while. Launches, drains that have begun, and repair go on."""
    target = Target(cluster, nodepool, node)
    target.check("pause")
    request = build_pause(duration, until, reason, by or current_user(), datetime.now(UTC))
    print_message(output, asyncio.run(send_request(connection, target, "pause", request)))


@resuming.command()
@with_connection
def resume(
    connection: Connection,
    cluster: Cluster = False,
    nodepool: Pool = "",
    node: Node = "",
    by: By = "",
    output: Output = "table",
) -> None:
    """Let voluntary disruption go on that was paused."""
    target = Target(cluster, nodepool, node)
    target.check("resume")
    request = Resume(by=by or current_user())
    print_message(output, asyncio.run(send_request(connection, target, "resume", request)))


def build_pause(duration: str, until: str, reason: str, by: str, now: datetime) -> Pause:
    """Raises `Refused` with the option and what to write."""
    if bool(duration) == bool(until):
        raise UsageError("pause: until when? Give one of --for 2h and --until 2026-06-01T18:00:00Z")
    try:
        ends_at = now + (parse_duration(duration) or timedelta(0)) if duration else datetime.fromisoformat(until)
    except DurationError as error:
        raise UsageError(f"--for: {error}") from error
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--until: {until!r} is no moment; write one such as 2026-06-01T18:00:00Z") from error
    request = Pause(by=by, reason=reason, until=ends_at)
    if problem := problem_of(request, now):
        raise UsageError(f"pause: --{problem}")
    return request


def current_user() -> str:
    """By number where the user has no name: the image's has none."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}".replace(",", " ")


async def send_request(
    connection: Connection, target: Target, verb: Literal["pause", "resume"], request: Pause | Resume
) -> str:
    """The answer. Raises `Refused` where there is nothing of this name, or it says no."""
    client = await connection.connect()
    workflow_id = await _find_workflow_id(client, connection.cluster, target)
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(workflow_id)
    try:
        return (await send_update(handle, verb, request, about=verb)).message
    except NoResponse as late:
        await handle.signal(f"{verb}_disruption", request)
        return f"no worker answers {late}; it was sent as a signal and counts as soon as one does"
    except WorkflowNotFound as unknown:
        what = (
            f"--nodepool {target.pool}" if target.pool else "--cluster" if target.cluster else f"--node {target.node}"
        )
        why = f"no workflow {workflow_id} runs; is the name right, and --cluster-name, and does a worker run?"
        raise UsageError(f"{what}: {why}") from unknown


async def _find_workflow_id(client: Client, cluster: str, target: Target) -> str:
    if target.cluster:
        return ids.cluster(cluster)
    if target.pool:
        return ids.nodepool(cluster, target.pool)
    found = await NodeClaimVisibility(client, cluster).find_running(target.node)
    if found is None:
        message = f"no NodeClaim, Node or instance of this name runs in cluster {cluster}"
        raise UsageError(f"--node {target.node}: {message}; `tenure get` lists those that do")
    return found.workflow_id
