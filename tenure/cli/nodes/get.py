"""`tenure get [NAME...]`: the nodes of a cluster, each with its phase, deadline and blocker.

All data comes from Temporal's visibility: one request lists a thousand nodes, and no worker is needed. Only the
sentences of blockers come from the workflows, and are omitted without a worker. Terminated workflows are listed too,
since their nodes are missing from the table.
"""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import typer
from temporalio.client import Client

from tenure.cli.command import NodePoolName
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import (
    MAX_QUERIES,
    RESTARTED,
    NodeClaimSummary,
    NodeClaimVisibility,
    PageUrl,
    StoppedWorkflow,
    as_json,
    format_since,
    format_span,
    format_until,
    list_stopped_workflows,
    no_page_url,
    nodeclaim_name,
    query_states,
    with_verdict,
)
from tenure.cli.output import Result, format_columns
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.model.base import format_count, format_number
from tenure.model.nodeclaim.history import NodeClaimExplanation
from workflows import ids

Names = Annotated[list[str] | None, typer.Argument(help="NodeClaims, Nodes or instances (default: all nodes).")]
PhaseName = Literal["Launch", "Registration", "Initialization", "Ready", "Drain", "Termination"]
Phase = Annotated[PhaseName | None, typer.Option("--phase", case_sensitive=False, help="Only this phase.")]
Overdue = Annotated[bool, typer.Option("--overdue", help="Only nodes past the deadline of their phase.")]
_COLUMNS: Final = [
    "NodeClaim",
    "node",
    "NodePool",
    "phase",
    "since",
    "deadline",
    "type",
    "zone",
    "capacity",
    "$/h",
    "blocked by",
]
_POOL: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")


@temporal_command
async def get(
    connection: Connection,
    names: Names = None,
    nodepool: NodePoolName = "",
    phase: Phase = None,
    overdue: Overdue = False,
) -> Result:
    """List nodes with phase, deadline, blocker, instance type, zone and price at launch, and terminated workflows."""
    query = build_condition(nodepool, phase or "", overdue=overdue)
    client, cluster = await connection.connect(), connection.cluster
    found, stopped = await asyncio.gather(
        read(client, cluster, names or (), query, connection.page_url), list_stopped_workflows(client, cluster)
    )
    error = None
    nodeclaims = ids.nodeclaims(cluster)
    known = {nodeclaim_name(one.workflow_id) for one in stopped if one.workflow_id.startswith(nodeclaims)}
    if missing := [name for name in names or () if name not in known and not any(one.is_called(name) for one in found)]:
        error = UsageError(
            f"get {' '.join(missing)}: no running node of this name in cluster {connection.cluster}"
            f"{' matches these options' if query else ''}; `tenure why NAME` explains deleted nodes"
        )
    now = datetime.now(UTC)
    found = await _with_verdicts(client, found)
    tables = [format_table(found, now), *format_blockers(found), *format_stopped(stopped, now)]
    return Result(nodes_as_json(found, stopped), tables, error=error)


def build_condition(pool: str, phase: str, *, overdue: bool) -> str:
    """A visibility query. Raises `UsageError` for an invalid NodePool name."""
    if pool and not _POOL.fullmatch(pool):
        raise UsageError(f"--nodepool: invalid name {pool!r}, expected the name of a NodePool, e.g. web")
    parts = (
        f"TenureNodePool = '{pool}'" if pool else "",
        f"TenurePhase = '{phase}'" if phase else "",
        "TenureOverdue = true" if overdue else "",
    )
    return " AND ".join(filter(None, parts))


async def read(
    client: Client, cluster: str, names: Sequence[str], query: str, page_url: PageUrl = no_page_url
) -> list[NodeClaimSummary]:
    """By NodePool and name."""
    visibility = NodeClaimVisibility(client, cluster, page_url)
    running = " AND ".join(filter(None, ("ExecutionStatus = 'Running'", query)))
    found = await (visibility.find_by_names(names, running) if names else visibility.list_all(running))
    return sorted(found, key=lambda nodeclaim: (nodeclaim.pool, nodeclaim.name))


async def _with_verdicts(client: Client, found: Sequence[NodeClaimSummary]) -> list[NodeClaimSummary]:
    blocked = [one.workflow_id for one in found if one.blocked_by][:MAX_QUERIES]
    explanations = await query_states(client, blocked, NodeClaimExplanation, "explain")
    verdicts = {workflow_id: one.verdict for workflow_id, one in explanations.items()}
    return [with_verdict(one, verdicts.get(one.workflow_id)) for one in found]


def format_blockers(found: Sequence[NodeClaimSummary]) -> list[str]:
    """One part of the output with code and sentence of blocked nodes; the table has only the code."""
    blocked = [one for one in found if one.sentence]
    more = sum(bool(one.blocked_by) for one in found) - len(blocked)
    lines = [f"{one.name}: {one.blocker}" for one in blocked]
    lines += [f"{more} more blocked: `tenure why NODE` explains each"] if lines and more else []
    return ["\n".join(lines)] if lines else []


def nodes_as_json(found: Sequence[NodeClaimSummary], stopped: Sequence[StoppedWorkflow] = ()) -> dict[str, Any]:
    return {
        "nodes": [as_json(nodeclaim) for nodeclaim in found],
        "pricePerHour": round(sum(one.price for one in found), 6),
        "stoppedWorkflows": [
            {
                "workflow": one.workflow_id,
                "status": one.status,
                "endedAt": one.ended_at.isoformat() if one.ended_at else None,
            }
            for one in stopped
        ],
    }


def format_stopped(stopped: Sequence[StoppedWorkflow], now: datetime) -> list[str]:
    """One part of the output; empty if every workflow runs."""
    lines = [
        f"workflow {one.workflow_id}: {one.status}"
        f"{f' {format_span(now - one.ended_at)} ago' if one.ended_at else ''}; {RESTARTED}"
        for one in stopped
    ]
    return ["\n".join(lines)] if lines else []


def format_table(found: Sequence[NodeClaimSummary], now: datetime) -> str:
    """One row per node, and a summary with the next step."""
    if not found:
        return "No nodes found. `tenure doctor` checks the installation."
    return f"{format_columns(_COLUMNS, [_table_row(one, now) for one in found])}\n\n{_format_summary(found)}"


def _table_row(nodeclaim: NodeClaimSummary, now: datetime) -> tuple[str, ...]:
    return (
        nodeclaim.name,
        nodeclaim.node_name or "-",
        nodeclaim.pool or "-",
        nodeclaim.phase + (" overdue" if nodeclaim.overdue else "") + (" paused" if nodeclaim.paused else ""),
        format_since(nodeclaim, now),
        format_until(nodeclaim, now),
        nodeclaim.instance_type or "-",
        nodeclaim.zone or "-",
        nodeclaim.capacity_type or "-",
        f"{nodeclaim.price:.4f}" if nodeclaim.price else "-",
        nodeclaim.blocked_by or "-",
    )


def _format_summary(found: Sequence[NodeClaimSummary]) -> str:
    overdue, unknown = sum(one.overdue for one in found), sum(not one.price for one in found)
    price = f"{format_number(sum(one.price for one in found))} $/h"
    price += f" without {unknown} of unknown price" if unknown else ""
    summary = f"{format_count(len(found), 'node')}, {price}"
    return f"{summary}, {overdue} overdue: `tenure stuck` shows the next action" if overdue else summary
