"""`tenure pause` and `tenure resume` of voluntary disruption, for the cluster, a NodePool or a node.

Both are sent as updates. If no worker responds, they are sent as signals, which take effect once a worker runs.
"""

import getpass
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from tenure.apis.durations import DurationError, parse_duration
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import Result, message_result
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.cli.temporal_updates import NoResponse, WorkflowNotFound, raise_if_not_found, send_update
from tenure.model.signals import Pause, Resume
from tenure.policy.lifecycle.pauses import problem_of
from workflows import ids

Cluster = Annotated[bool, typer.Option("--cluster", help="The whole cluster.")]
Pool = Annotated[str, typer.Option("--nodepool", help="NodePool.")]
Node = Annotated[str, typer.Option("--node", help="Node, NodeClaim or instance ID.")]
Duration = Annotated[str, typer.Option("--for", help="Duration, e.g. 2h.")]
Until = Annotated[str, typer.Option("--until", help="End of the pause, e.g. 2026-06-01T18:00:00Z.")]
Reason = Annotated[str, typer.Option("--reason", help="Reason; shown wherever the pause blocks something.")]
By = Annotated[str, typer.Option("--by", help="Requester (default: user@host).")]


@dataclass(frozen=True)
class Target:
    """The target of a pause; exactly one field is set."""

    cluster: bool = False
    pool: str = ""
    node: str = ""

    def __str__(self) -> str:
        return "--cluster" if self.cluster else f"--nodepool {self.pool}" if self.pool else f"--node {self.node}"

    def check(self, verb: str) -> None:
        """Raises `UsageError`."""
        if sum((self.cluster, bool(self.pool), bool(self.node))) != 1:
            raise UsageError(f"{verb}: exactly one of --cluster, --nodepool NAME and --node NAME is required")


@temporal_command
async def pause(
    connection: Connection,
    cluster: Cluster = False,
    nodepool: Pool = "",
    node: Node = "",
    duration: Duration = "",
    until: Until = "",
    reason: Reason = "",
    by: By = "",
) -> Result:
    """Pause voluntary disruption. Launches, running drains and interruptions continue."""
    target = Target(cluster, nodepool, node)
    target.check("pause")
    request = build_pause(duration, until, reason, by or current_user(), datetime.now(UTC))
    return message_result(await send_request(connection, target, "pause", request))


@temporal_command
async def resume(
    connection: Connection, cluster: Cluster = False, nodepool: Pool = "", node: Node = "", by: By = ""
) -> Result:
    """Resume voluntary disruption."""
    target = Target(cluster, nodepool, node)
    target.check("resume")
    return message_result(await send_request(connection, target, "resume", Resume(by=by or current_user())))


def build_pause(duration: str, until: str, reason: str, by: str, now: datetime) -> Pause:
    """Raises `UsageError`."""
    if bool(duration) == bool(until):
        raise UsageError("pause: exactly one of --for and --until is required, e.g. --for 2h")
    try:
        ends_at = now + (parse_duration(duration) or timedelta(0)) if duration else datetime.fromisoformat(until)
    except DurationError as error:
        raise UsageError(f"--for: {error}") from error
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--until: invalid time {until!r}, expected RFC 3339, e.g. 2026-06-01T18:00:00Z") from error
    request = Pause(by=by, reason=reason, until=ends_at)
    if problem := problem_of(request, now):
        raise UsageError(f"pause: --{problem}")
    return request


def current_user() -> str:
    """The UID if the user has no name, as in the image."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}".replace(",", " ")


async def send_request(
    connection: Connection, target: Target, verb: Literal["pause", "resume"], request: Pause | Resume
) -> str:
    """The message of the workflow. Raises `UsageError` for an unknown name or a rejection."""
    client = await connection.connect()
    workflow_id = await _find_workflow_id(client, connection.cluster, target)
    try:
        return await _send_to_workflow(client, workflow_id, verb, request)
    except WorkflowNotFound as unknown:
        why = f"no workflow {workflow_id} runs; check the name and --cluster-name, and that a worker runs"
        raise UsageError(f"{target}: {why}") from unknown


async def _send_to_workflow(
    client: Client, workflow_id: str, verb: Literal["pause", "resume"], request: Pause | Resume
) -> str:
    """Raises `WorkflowNotFound`, RPCError, or for a rejection `UsageError`."""
    try:
        return (await send_update(client, workflow_id, verb, request, about=verb)).message
    except NoResponse as late:
        try:
            await client.get_workflow_handle(workflow_id).signal(f"{verb}_disruption", request)
        except RPCError as error:
            raise_if_not_found(error)
            raise
        return f"{late}; sent as a signal, which takes effect once a worker runs"


async def _find_workflow_id(client: Client, cluster: str, target: Target) -> str:
    if target.cluster:
        return ids.cluster(cluster)
    if target.pool:
        return ids.nodepool(cluster, target.pool)
    found = await NodeClaimVisibility(client, cluster).find_running(target.node)
    if found is None:
        message = f"no running NodeClaim, Node or instance of this name in cluster {cluster}"
        raise UsageError(f"{target}: {message}; `tenure get` lists them")
    return found.workflow_id
