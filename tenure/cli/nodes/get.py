"""`tenure get [NAME...]`: the nodes of a cluster, each with its phase, deadline and blocker.

All data comes from Temporal's visibility: one request lists a thousand nodes, and no worker is needed.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import typer

from tenure.cli.command import NodePoolName
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import NodeClaimSummary, NodeClaimVisibility, as_json, format_since, format_until
from tenure.cli.output import Result, format_columns
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.model.base import format_count, format_number

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
    """List nodes with phase, deadline, blocker, instance type, zone and price at launch."""
    query = build_condition(nodepool, phase or "", overdue=overdue)
    found = await read(connection, names or (), query)
    error = None
    if missing := [name for name in names or () if not any(one.is_called(name) for one in found)]:
        error = UsageError(
            f"get {' '.join(missing)}: no running node of this name in cluster {connection.cluster}"
            f"{' matches these options' if query else ''}; `tenure why NAME` explains deleted nodes"
        )
    return Result(nodes_as_json(found), [format_table(found, datetime.now(UTC))], error=error)


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


async def read(connection: Connection, names: Sequence[str], query: str) -> list[NodeClaimSummary]:
    """By NodePool and name."""
    visibility = NodeClaimVisibility(await connection.connect(), connection.cluster, connection.page_url)
    running = " AND ".join(filter(None, ("ExecutionStatus = 'Running'", query)))
    found = await (visibility.find_by_names(names, running) if names else visibility.list_all(running))
    return sorted(found, key=lambda nodeclaim: (nodeclaim.pool, nodeclaim.name))


def nodes_as_json(found: Sequence[NodeClaimSummary]) -> dict[str, Any]:
    return {
        "nodes": [as_json(nodeclaim) for nodeclaim in found],
        "pricePerHour": round(sum(one.price for one in found), 6),
    }


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
