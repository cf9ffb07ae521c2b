"""`tenure get [NAME...]`: the nodes of a cluster, each with its phase, since when, until when, and what it waits for.

All of it comes with Temporal's list of workflows: one request for a thousand nodes, and no worker is needed.
"""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import typer

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.durations import format_since, format_until
from tenure.cli.nodes.workflows import NodeClaimSummary, NodeClaimVisibility, as_json
from tenure.cli.output import Output, format_columns, print_result
from tenure.cli.temporal_client import Connection, with_connection

app = typer.Typer(add_completion=False)

Names = Annotated[list[str] | None, typer.Argument(help="NodeClaims, Nodes or instances; all of them without it.")]
Pool = Annotated[str, typer.Option("--nodepool", help="Of this NodePool alone.")]
PhaseName = Literal["Launch", "Registration", "Initialization", "Ready", "Drain", "Termination"]
Phase = Annotated[PhaseName | None, typer.Option("--phase", case_sensitive=False, help="In this phase alone.")]
Overdue = Annotated[bool, typer.Option("--overdue", help="Past the deadline of their phase alone.")]
_COLUMNS: Final = (
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
)
_POOL: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")


@app.command()
@with_connection
def get(
    connection: Connection,
    names: Names = None,
    nodepool: Pool = "",
    phase: Phase = None,
    overdue: Overdue = False,
    output: Output = "table",
) -> None:
    """List nodes: phase, since when, until when, what they wait for, type, zone and price as launched."""
    query = build_condition(nodepool, phase or "", overdue=overdue)
    found = asyncio.run(read(connection, names or (), query))
    print_result(output, nodes_as_json(found), format_table(found, datetime.now(UTC)))
    missing = [name for name in names or () if not any(nodeclaim.is_called(name) for nodeclaim in found)]
    if missing:
        raise UsageError(
            f"get {' '.join(missing)}: no node of this name lives in cluster {connection.cluster}"
            f"{' that these options choose' if query else ''}; `tenure why NAME` tells of those that are gone"
        )


def build_condition(pool: str, phase: str, *, overdue: bool) -> str:
    """What the list is narrowed by, in Temporal's words. Raises `Refused` for what is no NodePool's name."""
    if pool and not _POOL.fullmatch(pool):
        raise UsageError(f"get: --nodepool {pool}: that is no name; write that of a NodePool, such as web")
    parts = (
        f"TenureNodePool = '{pool}'" if pool else "",
        f"TenurePhase = '{phase}'" if phase else "",
        "TenureOverdue = true" if overdue else "",
    )
    return " AND ".join(filter(None, parts))


async def read(connection: Connection, names: Sequence[str], query: str) -> list[NodeClaimSummary]:
    """By NodePool and name."""
    visibility = NodeClaimVisibility(await connection.connect(), connection.cluster)
    running = " AND ".join(filter(None, ("ExecutionStatus = 'Running'", query)))
    found = await (visibility.find_by_names(names, running) if names else visibility.list_all(running))
    return sorted(found, key=lambda nodeclaim: (nodeclaim.pool, nodeclaim.name))


def nodes_as_json(found: Sequence[NodeClaimSummary]) -> dict[str, Any]:
    return {
        "nodes": [as_json(nodeclaim) for nodeclaim in found],
        "pricePerHour": round(sum(one.price for one in found), 6),
    }


def format_table(found: Sequence[NodeClaimSummary], now: datetime) -> str:
    """A row each, and one line that sums it up and says what is next."""
    if not found:
        return "There is no such node. `tenure plan` says what would be done, `tenure doctor` what is missing."
    return (
        f"{format_columns(_COLUMNS, [_table_row(nodeclaim, now) for nodeclaim in found])}\n\n{_format_summary(found)}"
    )


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
    overdue = sum(nodeclaim.overdue for nodeclaim in found)
    unknown = sum(not nodeclaim.price for nodeclaim in found)
    price = f"{sum(nodeclaim.price for nodeclaim in found):.4g} $/h" + (
        f" without {unknown} of unknown price" if unknown else ""
    )
    summary = f"{len(found)} node{'s' if len(found) != 1 else ''}, {price}"
    return f"{summary}, {overdue} overdue: `tenure stuck` says what follows" if overdue else summary
