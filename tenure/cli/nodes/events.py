"""`tenure events [NAME]`: AWS events per node with the policy applied and the outcome.

The events come from the memos of the NodeClaim workflows: one request lists hundreds of nodes, and no worker is needed.
Deleted nodes are listed for as long as Temporal keeps their workflows.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from pydantic import TypeAdapter, ValidationError
from temporalio.client import Client, WorkflowExecution

from tenure.cli.command import NodePoolName, parse_length
from tenure.cli.console import PrintableTable, folded, make_table
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import NodeClaimSummary, NodeClaimVisibility, PageUrl, format_links, no_page_url
from tenure.cli.output import Result
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.controller.temporal.queries import query_or_none
from tenure.model.interruption.records import MEMO, EventRecord, InterruptionState, MessageCounts
from workflows import ids

_RECORDS_ADAPTER: Final = TypeAdapter(tuple[EventRecord, ...])


@dataclass(frozen=True)
class NodeEvents:
    nodeclaim: NodeClaimSummary
    records: tuple[EventRecord, ...]


class NodeEventReader:
    def __init__(self, client: Client, cluster: str, page_url: PageUrl = no_page_url) -> None:
        self._client, self._cluster = client, cluster
        self._visibility = NodeClaimVisibility(client, cluster, page_url)

    async def list_node_events(self, after: datetime) -> list[NodeEvents]:
        """Nodes with events: running ones and those deleted since `after`."""
        condition = f"(ExecutionStatus = 'Running' OR CloseTime >= '{after.astimezone(UTC).isoformat()}')"
        found = await self._visibility.list_runs(condition)
        memos = {one.id: one for one in found if MEMO in one.raw_info.memo.fields}
        nodeclaims = [one for one in self._visibility.merge_runs(found) if one.workflow_id in memos]
        return [NodeEvents(nodeclaim, await _read_records(memos[nodeclaim.workflow_id])) for nodeclaim in nodeclaims]

    async def has_node(self, name: str) -> bool:
        every = await self._visibility.list_all()
        return any(one.is_called(name) for one in every)

    async def read_message_counts(self) -> MessageCounts | None:
        """Up to a minute old. None if no worker responds, or none reads a queue."""
        state = await query_or_none(self._client, ids.interruption(self._cluster), "state", InterruptionState)
        return state.message_counts if state and state.queue else None


async def _read_records(execution: WorkflowExecution) -> tuple[EventRecord, ...]:
    """Empty if a newer version wrote a format that this one cannot read."""
    try:
        memo: Mapping[str, object] = await execution.memo()
        return _RECORDS_ADAPTER.validate_python(memo[MEMO])
    except ValidationError:
        return ()


Name = Annotated[str, typer.Argument(help="NodeClaim, Node or instance (default: all nodes).")]
Since = Annotated[str, typer.Option("--since", help="Only events of this period, e.g. 30m, 24h or 168h.")]
_DROPPED: Final = {
    "repeated": "duplicates",
    "foreign": "for instances without a NodeClaim",
    "over": "for deleted or terminating nodes",
    "unwanted": "not about a node",
    "unknown": "of an unknown kind",
    "malformed": "malformed",
}
"""By the label `reason` of tenure_interruption_messages_dropped_total."""


@temporal_command
async def events(connection: Connection, name: Name = "", nodepool: NodePoolName = "", since: Since = "24h") -> Result:
    """List AWS events per node with the policy applied and the outcome.

    Pending events are always listed. A summary of the other messages of the queue follows.
    """
    after = datetime.now(UTC) - parse_length("events: --since", since, "30m, 24h or 168h", zero=False)
    reader = NodeEventReader(await connection.connect_to_cluster(), connection.cluster, connection.page_url)
    node_events, message_counts = await asyncio.gather(reader.list_node_events(after), reader.read_message_counts())
    found = [one for one in node_events if _is_selected(one.nodeclaim, name, nodepool)]
    if name and not found and not await reader.has_node(name):
        hint = "`tenure get` lists the nodes, `tenure events` without a name lists all events"
        raise UsageError(
            f"events {name}: no NodeClaim, Node or instance of this name in cluster {connection.cluster}; {hint}"
        )
    rows = select_rows(found, after)
    about = name or (f"the nodes of {nodepool}" if nodepool else "any node")
    nothing = f"No AWS events for {about} since {_format_time(after)}."
    links = format_links(nodeclaim for nodeclaim, _ in rows)
    parts = [events_table(rows) if rows else nothing, *links, format_message_counts(message_counts)]
    return Result(as_json(rows, message_counts), parts)


def _is_selected(nodeclaim: NodeClaimSummary, name: str, pool: str) -> bool:
    return (not name or nodeclaim.is_called(name)) and (not pool or nodeclaim.pool == pool)


def select_rows(node_events: Sequence[NodeEvents], after: datetime) -> list[tuple[NodeClaimSummary, EventRecord]]:
    """Oldest first: records since `after`, and pending ones of running nodes."""
    rows = [
        (one.nodeclaim, record)
        for one in node_events
        for record in one.records
        if record.received_at >= after or (one.nodeclaim.open and record.waits)
    ]
    return sorted(rows, key=lambda row: (row[1].received_at, row[0].name))


def events_table(rows: Sequence[tuple[NodeClaimSummary, EventRecord]]) -> PrintableTable:
    return make_table(
        *folded("received", "event", "AWS acts"),
        *folded("NodeClaim", "instance", "NodePool", min_width=8),
        *folded("policy"),
        *folded("action", min_width=20),
        rows=(
            (
                _format_time(record.received_at),
                f"{record.kind} {record.code}".rstrip(),
                _format_time(record.starts),
                nodeclaim.name,
                nodeclaim.instance_id or "-",
                nodeclaim.pool or "-",
                f"{record.policy or 'none'}: {record.action}",
                describe_outcome(nodeclaim, record),
            )
            for nodeclaim, record in rows
        ),
    )


def describe_outcome(nodeclaim: NodeClaimSummary, record: EventRecord) -> str:
    if nodeclaim.open:
        since = "" if record.since == record.received_at else f" (since {_format_time(record.since)})"
        return f"{record.done}{since}"
    waited = "pending: " if record.waits else ""
    return f"{waited}{record.done}; node deleted at {_format_time(nodeclaim.since)}"


def format_message_counts(message_counts: MessageCounts | None) -> str:
    if message_counts is None:
        return "No worker reads the queue: run `tenure doctor` for the cause; INTERRUPTION_QUEUE may not be set."
    counts = message_counts.counts
    dropped = {text: counts[why] for why, text in _DROPPED.items() if counts.get(why)}
    used = max(0, counts.get("deleted", 0) - sum(dropped.values()))
    parts = [f"{counts.get('received', 0)} received", f"{used} sent to nodes"]
    parts += [f"{number} {text}" for text, number in dropped.items()]
    return f"Queue messages since {_format_time(message_counts.since)}: {', '.join(parts)}."


def as_json(
    rows: Sequence[tuple[NodeClaimSummary, EventRecord]], message_counts: MessageCounts | None
) -> dict[str, Any]:
    return {
        "events": [
            {
                "nodeClaim": nodeclaim.name,
                "node": nodeclaim.node_name,
                "instance": nodeclaim.instance_id,
                "nodePool": nodeclaim.pool,
                "open": nodeclaim.open,
                "workflowUrl": nodeclaim.url or None,
                **record.model_dump(mode="json"),
            }
            for nodeclaim, record in rows
        ],
        "messages": message_counts.model_dump(mode="json") if message_counts else None,
    }


def _format_time(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S") if at else "-"
