"""`tenure get [NAME...]`: the nodes of a cluster, each with its phase, since when, until when, and what it waits for.

All of it comes with Temporal's list of workflows: one request for a thousand nodes, and no worker is needed.
"""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import typer

from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.durations import since, until
from tenure.cli.nodes.workflows import Lives, NodeLife, as_json
from tenure.cli.output import Output, answer, columns
from tenure.cli.temporal_client import Connection, connected

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
@connected
def get(
    connection: Connection,
    names: Names = None,
    nodepool: Pool = "",
    phase: Phase = None,
    overdue: Overdue = False,
    output: Output = "table",
) -> None:
    """List nodes: phase, since when, until when, what they wait for, type, zone and price as launched."""
    wanted = condition(nodepool, phase or "", overdue=overdue)
    found = asyncio.run(read(connection, names or (), wanted))
    answer(output, listing(found), shown(found, datetime.now(UTC)))
    missing = [name for name in names or () if not any(life.is_called(name) for life in found)]
    if missing:
        raise Refused(
            f"get {' '.join(missing)}: no node of this name lives in cluster {connection.cluster}"
            f"{' that these options choose' if wanted else ''}; `tenure why NAME` tells of those that are gone"
        )


def condition(pool: str, phase: str, *, overdue: bool) -> str:
    """What the list is narrowed by, in Temporal's words. Raises `Refused` for what is no NodePool's name."""
    if pool and not _POOL.fullmatch(pool):
        raise Refused(f"get: --nodepool {pool}: that is no name; write that of a NodePool, such as web")
    parts = (
        f"TenureNodePool = '{pool}'" if pool else "",
        f"TenurePhase = '{phase}'" if phase else "",
        "TenureOverdue = true" if overdue else "",
    )
    return " AND ".join(filter(None, parts))


async def read(connection: Connection, names: Sequence[str], wanted: str) -> list[NodeLife]:
    """By NodePool and name."""
    lives = Lives(await connection.client(), connection.cluster)
    running = " AND ".join(filter(None, ("ExecutionStatus = 'Running'", wanted)))
    found = await (lives.named(names, running) if names else lives.all(running))
    return sorted(found, key=lambda life: (life.pool, life.name))


def listing(found: Sequence[NodeLife]) -> dict[str, Any]:
    return {"nodes": [as_json(life) for life in found], "pricePerHour": round(sum(one.price for one in found), 6)}


def shown(found: Sequence[NodeLife], now: datetime) -> str:
    """A row each, and one line that sums it up and says what is next."""
    if not found:
        return "There is no such node. `tenure plan` says what would be done, `tenure doctor` what is missing."
    return f"{columns(_COLUMNS, [_row(life, now) for life in found])}\n\n{_sum(found)}"


def _row(life: NodeLife, now: datetime) -> tuple[str, ...]:
    return (
        life.name,
        life.node_name or "-",
        life.pool or "-",
        life.phase + (" overdue" if life.overdue else "") + (" paused" if life.paused else ""),
        since(life, now),
        until(life, now),
        life.instance_type or "-",
        life.zone or "-",
        life.capacity_type or "-",
        f"{life.price:.4f}" if life.price else "-",
        life.blocked_by or "-",
    )


def _sum(found: Sequence[NodeLife]) -> str:
    late = sum(life.overdue for life in found)
    unknown = sum(not life.price for life in found)
    price = f"{sum(life.price for life in found):.4g} $/h" + (f" without {unknown} of unknown price" if unknown else "")
    words = f"{len(found)} node{'s' if len(found) != 1 else ''}, {price}"
    return f"{words}, {late} overdue: `tenure stuck` says what follows" if late else words
