"""`tenure approve NAME`, `tenure reject NAME`, `tenure cancel COMMAND`: operator decisions, sent as updates.

NAME is a NodeClaim, Node or instance, or a rollout plan, which begins with the name of its NodePool.
`tenure stuck`, the page of the Cluster workflow and the condition `DisruptionReason` of NodeClaims name commands.
"""

from typing import Annotated

import typer
from temporalio.client import Client

from tenure.cli.command import RequestedBy, parse_length
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.output import Result, message_result
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.cli.temporal_updates import send_update_for_message
from tenure.model.disruption.commands import CommandCancellation
from tenure.model.interruption.records import ApproveEvent, RejectEvent
from tenure.model.rollout import ApproveRollout, RejectRollout
from workflows import ids

Name = Annotated[str, typer.Argument(help="Node, or plan as the NodePool's events name it, e.g. web-3f2a9c.")]
Reason = Annotated[str, typer.Option("--reason", help="Reason; shown with the decision.")]
RollBack = Annotated[bool, typer.Option("--roll-back", help="For a plan: return to the last good image.")]
CommandName = Annotated[str, typer.Argument(help="Workflow ID of the command, or its last part.")]
Cooldown = Annotated[str, typer.Option("--keep", help="How long its nodes are not disrupted again, e.g. 4h.")]


@temporal_command
async def approve(connection: Connection, name: Name, by: RequestedBy = "", reason: Reason = "") -> Result:
    """Approve a rollout wave, resume a halted rollout, or approve AWS maintenance of a node."""
    plan, event = ApproveRollout(plan=name, by=by, reason=reason), ApproveEvent(by=by, reason=reason)
    return message_result(await _decide(connection, name, plan, event))


@temporal_command
async def reject(
    connection: Connection, name: Name, by: RequestedBy = "", reason: Reason = "", roll_back: RollBack = False
) -> Result:
    """Stop a rollout: running replacements finish, and no other node is replaced. Or keep a node despite an AWS event,
    for as long as its policy allows."""
    plan = RejectRollout(plan=name, by=by, reason=reason, roll_back=roll_back)
    return message_result(await _decide(connection, name, plan, RejectEvent(by=by, reason=reason)))


@temporal_command
async def cancel(
    connection: Connection, command: CommandName, by: RequestedBy = "", reason: Reason = "", cooldown: Cooldown = "0s"
) -> Result:
    """Cancel a disruption command: keep its nodes and delete unused replacements."""
    cooldown_length = parse_length(f"cancel {command}: --keep", cooldown, "4h")
    request = CommandCancellation(by=by, reason=reason, retain_for=cooldown_length)
    return message_result(await send_cancel(await connection.connect(), connection.cluster, command, request))


async def _decide(
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
    """The message of the NodeClaim workflow. Raises `UsageError` with the reason of a rejection."""
    verb = "approve" if isinstance(decision, ApproveEvent) else "reject"
    absent = f"node {name} is deleted; `tenure why {name}` shows its history"
    return await send_update_for_message(
        client, workflow_id, f"{verb}_event", decision, about=f"{verb} {name}", absent=absent
    )


async def send_rollout_decision(client: Client, cluster: str, decision: ApproveRollout | RejectRollout) -> str:
    """The message of the NodePool workflow. Raises `UsageError` with the reason of a rejection."""
    verb = "approve" if isinstance(decision, ApproveRollout) else "reject"
    about = f"{verb} {decision.plan}"
    pool, dash, _ = decision.plan.rpartition("-")
    if not dash:
        raise UsageError(f"{about}: invalid plan, expected NODEPOOL-HASH, e.g. web-3f2a9c")
    named = "events of a NodePool name its plans, `tenure get` lists the nodes"
    absent = f"there is no NodePool {pool} in cluster {cluster}; {named}"
    return await send_update_for_message(
        client, ids.nodepool(cluster, pool), verb, decision, about=about, absent=absent
    )


async def send_cancel(client: Client, cluster: str, command: str, request: CommandCancellation) -> str:
    """The message of the Disruption workflow. Raises `UsageError` with the reason of a rejection."""
    name = command.rpartition("/")[2]
    named = "`tenure stuck` lists overdue commands, the condition DisruptionReason of NodeClaims names all"
    absent = f"no command {name} is running in cluster {cluster}; {named}"
    workflow_id = ids.disruption(cluster, name)
    return await send_update_for_message(client, workflow_id, "cancel", request, about=f"cancel {name}", absent=absent)
