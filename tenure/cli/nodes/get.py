"""`tenure get [NAME...]`: the nodes of a cluster, each with its phase, deadline and blocker.

All data comes from Temporal's visibility: one request lists a thousand nodes, and no worker is needed. Only the
sentences of blockers come from the workflows, and are omitted without a worker. Terminated workflows are listed too,
since their nodes are missing from the table.
"""

import asyncio
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import compress
from typing import Annotated, Any, Final, Literal, NoReturn, get_args

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
from tenure.cli.output import Result, column_widths, fit_columns, format_columns, format_row
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.model.base import format_count, format_number
from tenure.model.nodeclaim.history import NodeClaimExplanation
from workflows import ids

Names = Annotated[list[str] | None, typer.Argument(help="NodeClaims, Nodes or instances (default: all nodes).")]
PhaseName = Literal["Launch", "Registration", "Initialization", "Ready", "Drain", "Termination"]
Phase = Annotated[PhaseName | None, typer.Option("--phase", case_sensitive=False, help="Only this phase.")]
Overdue = Annotated[bool, typer.Option("--overdue", help="Only nodes past the deadline of their phase.")]
Format = Annotated[
    Literal["table", "wide", "name", "json", "yaml"],
    typer.Option("--output", "-o", help="Output format; wide shows all columns."),
]
SortKey = Literal["name", "nodepool", "phase", "since", "deadline", "type", "price"]
SortBy = Annotated[SortKey | None, typer.Option("--sort-by", help="Sort key (default: NodePool and name).")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print rows again when they change, until Ctrl-C.")]
_PHASES: Final[tuple[str, ...]] = get_args(PhaseName)
_DELETED: Final = "Deleted"
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_SORT_KEYS: Final[Mapping[SortKey, Callable[[NodeClaimSummary], Any]]] = {
    "name": lambda one: one.name,
    "nodepool": lambda one: one.pool,
    "phase": lambda one: _PHASES.index(one.phase) if one.phase in _PHASES else len(_PHASES),
    "since": lambda one: one.since or _LAST,
    "deadline": lambda one: one.deadline or _LAST,
    "type": lambda one: one.instance_type,
    "price": lambda one: -one.price,
}
_OPTIONAL_COLUMNS: Final = ("node", "zone", "capacity", "$/h", "NodePool", "type")
"""Columns that a narrow terminal omits, first one first."""
WIDTH: Final = 80
"""Characters per line if stdout is not a terminal."""
WATCH_SECONDS: Final = 2.0
_POOL: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")


@temporal_command
async def get(
    connection: Connection,
    names: Names = None,
    nodepool: NodePoolName = "",
    phase: Phase = None,
    overdue: Overdue = False,
    sort_by: SortBy = None,
    watch: Watch = False,
    output: Format = "table",
) -> Result:
    """List nodes with phase, deadline, blocker, instance type, zone and price at launch, and terminated workflows."""
    query = build_condition(nodepool, phase or "", overdue=overdue)
    if watch and output not in ("table", "wide"):
        raise UsageError(f"get --watch: prints rows, so it does not support --output {output}")
    client, cluster = await connection.connect_to_cluster(), connection.cluster

    async def read_nodes() -> list[NodeClaimSummary]:
        found = await read(client, cluster, names or (), query, connection.page_url)
        return sort_nodes(await with_verdicts(client, found), sort_by)

    found, stopped = await asyncio.gather(read_nodes(), list_stopped_workflows(client, cluster))
    error = _find_unknown_names(cluster, names or (), query, found, stopped)
    width = None if output == "wide" else shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    if watch and not error:
        await _watch_nodes(read_nodes, found, width)
    if output == "name":
        return Result(None, [f"nodeclaim/{one.name}" for one in found], error=error)
    now = datetime.now(UTC)
    table = [] if error and not found else [format_table(found, now, width)]
    tables = [*table, *format_blockers(found), *format_stopped(stopped, now)]
    return Result(nodes_as_json(found, stopped), tables, error=error)


def _find_unknown_names(
    cluster: str,
    names: Sequence[str],
    query: str,
    found: Sequence[NodeClaimSummary],
    stopped: Sequence[StoppedWorkflow],
) -> UsageError | None:
    nodeclaims = ids.nodeclaims(cluster)
    known = {nodeclaim_name(one.workflow_id) for one in stopped if one.workflow_id.startswith(nodeclaims)}
    missing = [name for name in names if name not in known and not any(one.is_called(name) for one in found)]
    if not missing:
        return None
    return UsageError(
        f"get {' '.join(missing)}: no running node of this name in cluster {cluster}"
        f"{' matches these options' if query else ''}; `tenure why NAME` explains deleted nodes"
    )


def sort_nodes(found: Sequence[NodeClaimSummary], key: SortKey | None) -> list[NodeClaimSummary]:
    """Most expensive first for `price`; nodes without a value last. Equal ones stay in order."""
    return sorted(found, key=_SORT_KEYS[key]) if key else list(found)


async def _watch_nodes(
    read_nodes: Callable[[], Awaitable[list[NodeClaimSummary]]], found: list[NodeClaimSummary], width: int | None
) -> NoReturn:
    """Print all nodes, then each node that changes, in the columns of the first table."""
    now = datetime.now(UTC)
    columns, rows = _select_columns(found, now, width)
    widths = column_widths([columns, *rows])
    typer.echo(format_row([name.upper() for name in columns], widths))
    printed: dict[str, NodeClaimSummary] = {}
    while True:
        for one in find_changes(printed, found):
            typer.echo(format_row(_table_row(one, datetime.now(UTC), columns), widths))
        printed = {one.name: one for one in found}
        await asyncio.sleep(WATCH_SECONDS)
        found = await read_nodes()


def find_changes(
    before: Mapping[str, NodeClaimSummary], after: Sequence[NodeClaimSummary]
) -> Iterator[NodeClaimSummary]:
    """New and changed nodes, then the deleted ones."""
    yield from (one for one in after if before.get(one.name) != one)
    remaining = {one.name for one in after}
    deleted = (one for one in before.values() if one.name not in remaining)
    yield from (replace(one, phase=_DELETED, deadline=None) for one in deleted)


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


async def with_verdicts(client: Client, found: Sequence[NodeClaimSummary]) -> list[NodeClaimSummary]:
    """With the sentences of blockers, if their workflows respond."""
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


def format_table(found: Sequence[NodeClaimSummary], now: datetime, width: int | None = None) -> str:
    """One row per node, and a summary with the next step. Columns that do not fit into `width` are omitted."""
    if not found:
        return "No nodes found. `tenure doctor` checks the installation."
    return f"{format_columns(*_select_columns(found, now, width))}\n\n{_format_summary(found)}"


def _select_columns(
    found: Sequence[NodeClaimSummary], now: datetime, width: int | None
) -> tuple[list[str], list[list[str]]]:
    """The columns and their rows. All columns if `width` is None. Those that every output needs stay, even if they do
    not fit."""
    rows = [_table_row(one, now, list(_COLUMNS)) for one in found]
    widths = dict(zip(_COLUMNS, column_widths([list(_COLUMNS), *rows]), strict=True))
    columns = fit_columns(widths, _OPTIONAL_COLUMNS, width)
    is_selected = [name in columns for name in _COLUMNS]
    return columns, [list(compress(row, is_selected)) for row in rows]


def _table_row(nodeclaim: NodeClaimSummary, now: datetime, columns: Sequence[str]) -> list[str]:
    return [_COLUMNS[name](nodeclaim, now) or "-" for name in columns]


def _format_phase(nodeclaim: NodeClaimSummary) -> str:
    return nodeclaim.phase + (" overdue" if nodeclaim.overdue else "") + (" paused" if nodeclaim.paused else "")


_COLUMNS: Final[Mapping[str, Callable[[NodeClaimSummary, datetime], str]]] = {
    "NodeClaim": lambda one, _: one.name,
    "node": lambda one, _: one.node_name,
    "NodePool": lambda one, _: one.pool,
    "phase": lambda one, _: _format_phase(one),
    "since": lambda one, now: format_since(one, now).removesuffix(" ago"),
    "deadline": lambda one, now: format_until(one, now).removeprefix("in "),
    "type": lambda one, _: one.instance_type,
    "zone": lambda one, _: one.zone,
    "capacity": lambda one, _: one.capacity_type,
    "$/h": lambda one, _: f"{one.price:.4f}" if one.price else "",
    "blocked by": lambda one, _: one.blocked_by,
}


def _format_summary(found: Sequence[NodeClaimSummary]) -> str:
    overdue, unknown = sum(one.overdue for one in found), sum(not one.price for one in found)
    price = f"{format_number(sum(one.price for one in found))} $/h"
    price += f" without {unknown} of unknown price" if unknown else ""
    summary = f"{format_count(len(found), 'node')}, {price}"
    return f"{summary}, {overdue} overdue: `tenure stuck` shows the next action" if overdue else summary
