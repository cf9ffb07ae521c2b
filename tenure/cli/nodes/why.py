"""`tenure why NAME`: explain a node, also after it is deleted, or why a pod is pending or keeps its node.

NAME is a NodeClaim, a Node, an instance, or a pod (`namespace/name`, or only the name).
"""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.exported_histories import explain_exported_nodes
from tenure.cli.nodes.timeline import (
    ActivityCall,
    NodeExplanation,
    explain_completed,
    format_relative_time,
    list_activity_calls,
)
from tenure.cli.nodes.workflows import QUERY_TIMEOUT, NodeClaimSummary, NodeClaimVisibility, list_commands, query_states
from tenure.cli.output import Result
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.controller.temporal.errors import format_rpc_error
from tenure.controller.temporal.pollers import is_unpolled
from tenure.model.base import Message
from tenure.model.disruption.decision import NodeVerdict
from tenure.model.nodeclaim.history import NodeClaimExplanation
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.signals import REPEAT_QUERY
from workflows import ids

PREVIEW_TIMEOUT: Final = timedelta(seconds=30)


async def query_disruption_status(
    client: Client,
    cluster: str,
    name: str = "",
    *,
    pending_pods: bool = False,
    clearing_pods: bool = False,
    timeout: timedelta = PREVIEW_TIMEOUT,
) -> DisruptionStatus:
    """`blocked` is set if no status is available."""
    queue = ids.task_queue(cluster)
    if await is_unpolled(client, queue, datetime.now(UTC)):
        return DisruptionStatus(blocked=f"no worker polls the task queue {queue}; `tenure doctor` shows more")
    try:
        status: DisruptionStatus = await client.execute_workflow(
            "DisruptionPreview",
            DisruptionPreviewRequest(
                cluster=cluster, name=name, pending_pods=pending_pods, clearing_pods=clearing_pods
            ),
            id=ids.disruption_preview(cluster, uuid.uuid4().hex[:8]),
            task_queue=ids.task_queue(cluster),
            execution_timeout=timeout,
            result_type=DisruptionStatus,
        )
    except WorkflowFailureError as error:
        cause = getattr(error.cause, "cause", None) or error.cause
        return DisruptionStatus(blocked=f"no worker responded: {cause}; `tenure doctor` shows whether one runs")
    except RPCError as error:
        address = client.service_client.config.target_host
        return DisruptionStatus(blocked=format_rpc_error(error, namespace=client.namespace, address=address))
    return status


def format_disruption_status(found: DisruptionStatus) -> list[str]:
    """Why a node or a pod is not disrupted, or the planned disruption."""
    if found.blocked:
        return [f"unknown: {found.blocked}"]
    return [
        *found.messages,
        *(f"would be disrupted now ({one.reason}): {one.why}" for one in found.commands),
        *(line for one in found.verdicts for line in _format_verdict(one)),
    ]


def _format_verdict(one: NodeVerdict) -> Iterator[str]:
    """All blockers, so that a user who removes one also knows the others."""
    for exclusion in one.excluded:
        yield f"not disrupted ({exclusion.cause}; blocks {', '.join(exclusion.methods)}): {exclusion.message}"
    if one.eligible:
        yield f"eligible for {', '.join(one.eligible)}"
    yield from (f"still blocked: {reason}" for reason in one.rejected)


def as_json(found: DisruptionStatus) -> dict[str, Any]:
    return found.model_dump(mode="json", exclude_defaults=True)


DETAIL_TIMEOUT: Final = timedelta(seconds=2)
"""For pauses and calls, which are omitted if Temporal takes longer."""
RETRY_DELAYS_SECONDS: Final = (0.2, 0.5, 1.0)

ExportedHistory = Annotated[Path | None, typer.Option("--from", help="Folder written by `tenure history export`.")]


@dataclass(frozen=True)
class PodExplanation:
    """Why a pod is pending, or keeps its node."""

    status: DisruptionStatus

    def format_text(self, now: datetime) -> str:
        node = f" · node {self.status.verdicts[0].node}" if self.status.verdicts else ""
        lines = [f"Pod {self.status.pod}{node}", *(f"  {line}" for line in format_disruption_status(self.status))]
        if verdict := self.status.verdict:
            lines.append(f"  pending     {verdict.message}")
            lines.append(f"  since       {format_relative_time(verdict.since, now)}")
            lines += [f"  deadline    {format_relative_time(verdict.deadline, now)}"] if verdict.deadline else []
            lines += [f"  action      {verdict.remedy}"] if verdict.remedy else []
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return as_json(self.status)


@temporal_command
async def why(connection: Connection, name: str, exported_history: ExportedHistory = None) -> Result:
    """Explain a node: current phase, deadline, blockers, history, and why it is not disrupted. With a pod name, explain
    why it is pending, or keeps its node alive."""
    found = (
        explain_exported_nodes(exported_history, name, connection.decrypt_events)
        if exported_history
        else await explain_nodes_or_pod(connection, name)
    )
    return Result([one.as_json() for one in found], [format_explanations(found)])


def format_explanations(found: Sequence[NodeExplanation | PodExplanation]) -> str:
    return "\n\n".join(one.format_text(datetime.now(UTC)) for one in found)


async def explain_nodes_or_pod(connection: Connection, name: str) -> Sequence[NodeExplanation | PodExplanation]:
    """All nodes that ever had that name, oldest first. Raises `UsageError` for an unknown name."""
    client = await connection.connect_to_cluster()
    found = await NodeClaimVisibility(client, connection.cluster, connection.page_url).find_by_names([name])
    if not found:
        return [await _explain_pod(client, connection.cluster, name)]
    return await asyncio.gather(*(_explain_node(connection, client, nodeclaim) for nodeclaim in found))


async def _explain_pod(client: Client, cluster: str, name: str) -> PodExplanation:
    status = await query_disruption_status(client, cluster, name)
    if not status.pod:
        unsure = f"; pods could not be checked: {status.blocked}" if status.blocked else ", and no pod"
        hint = "`tenure get` lists the nodes; `tenure history export` may have saved older ones"
        raise UsageError(
            f"why {name}: no NodeClaim, Node or instance of this name in cluster {cluster}{unsure}; {hint}"
        )
    return PodExplanation(status)


async def _explain_node(connection: Connection, client: Client, nodeclaim: NodeClaimSummary) -> NodeExplanation:
    explain = _explain_running if nodeclaim.open else _explain_closed
    explanation, calls = await asyncio.gather(
        explain(client, connection.cluster, nodeclaim), _fetch_calls(connection, client, nodeclaim)
    )
    return replace(explanation, calls=calls)


async def _fetch_calls(connection: Connection, client: Client, nodeclaim: NodeClaimSummary) -> Sequence[ActivityCall]:
    """The calls of its last run; empty if Temporal does not return its history."""
    try:
        history = await client.get_workflow_handle(nodeclaim.workflow_id).fetch_history(rpc_timeout=DETAIL_TIMEOUT)
    except RPCError:
        return ()
    return list_activity_calls(connection.decrypt_events(history.events))


async def _explain_running(client: Client, cluster: str, nodeclaim: NodeClaimSummary) -> NodeExplanation:
    pending = asyncio.gather(
        query_disruption_status(client, cluster, nodeclaim.name),
        _query_pauses(client, cluster, nodeclaim.pool),
        _describe_commands(client, cluster, nodeclaim.name),
    )
    state = await query_explanation(client, nodeclaim)
    if isinstance(state, str):
        pending.cancel()
        return NodeExplanation(nodeclaim, remark=state)
    status, pauses, commands = await pending
    disruption = format_disruption_status(status)
    return NodeExplanation(nodeclaim, state, disruption=disruption, pauses=pauses, commands=commands)


class _Candidate(Message):
    claim: str


class _Proposal(Message):
    reason: str
    candidates: tuple[_Candidate, ...]


class _CommandState(Message):
    """The part of a command's state that names its nodes and its blocker."""

    proposal: _Proposal
    step: str
    blocked_by: str = ""

    def describe(self) -> str:
        return f"{self.proposal.reason} (step {self.step})" + (f": {self.blocked_by}" if self.blocked_by else "")


async def _describe_commands(client: Client, cluster: str, nodeclaim: str) -> tuple[str, ...]:
    """Step and blocker of the disruption command for the node; empty without one, or if it does not respond."""
    running = [one.id for one in await list_commands(client, cluster)]
    states = (await query_states(client, running, _CommandState)).values()
    return tuple(one.describe() for one in states if nodeclaim in {found.claim for found in one.proposal.candidates})


async def query_explanation(client: Client, nodeclaim: NodeClaimSummary) -> NodeClaimExplanation | str:
    """The explanation, or the reason why there is none."""
    try:
        return await _query_with_retry(client.get_workflow_handle(nodeclaim.workflow_id))
    except RPCError as error:
        return f"no worker responded: {error.message}; the explanation requires a running worker, see `tenure doctor`"
    except WorkflowQueryFailedError as rejection:
        return f"the worker rejected the query: {rejection}; it may be of an older version than this command"


async def _query_with_retry(handle: WorkflowHandle[Any, Any]) -> NodeClaimExplanation:
    """Retries while a worker that has just started loads the workflow."""
    delays = iter(RETRY_DELAYS_SECONDS)
    while True:
        try:
            state: NodeClaimExplanation = await handle.query(
                "explain", result_type=NodeClaimExplanation, rpc_timeout=QUERY_TIMEOUT
            )
            return state
        except WorkflowQueryFailedError as rejection:
            delay = next(delays, None)
            if delay is None or REPEAT_QUERY not in str(rejection):
                raise
        await asyncio.sleep(delay)


async def _query_pauses(client: Client, cluster: str, pool: str) -> tuple[str, ...]:
    """Pauses of the NodePool and of the cluster, one line each; empty if no worker responds."""
    if not pool:
        return ()
    handle = client.get_workflow_handle(ids.nodepool(cluster, pool))
    try:
        return tuple(await handle.query("pauses", result_type=list[str], rpc_timeout=DETAIL_TIMEOUT))
    except (RPCError, WorkflowQueryFailedError):
        return ()


async def _explain_closed(client: Client, cluster: str, nodeclaim: NodeClaimSummary) -> NodeExplanation:
    try:
        outcome = await NodeClaimVisibility(client, cluster).fetch_outcome(nodeclaim)
    except WorkflowFailureError as failed:
        return NodeExplanation(
            nodeclaim, remark=f"its workflow did not complete ({nodeclaim.status}): {failed.cause or failed}"
        )
    return explain_completed(nodeclaim, outcome)
