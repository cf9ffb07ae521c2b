"""`tenure events [NAME]`: what AWS said of instances, for which node, under which policy, and what was done.

All of it comes with Temporal's list of workflows, so that hundreds of nodes are one answer and no worker is needed;
nodes that are gone are told of for as long as Temporal keeps their workflows.

What nodes heard from AWS, as their workflows' memos keep it, and what became of the queue's messages.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from tenure.apis.durations import DurationError, parse_duration
from tenure.cli.console import make_console
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import NodeClaimSummary, NodeClaimVisibility, merge_runs
from tenure.cli.output import Output, print_result
from tenure.cli.temporal_client import Connection, with_connection
from tenure.model.interruption.records import MEMO, EventRecord, MessageCounts
from workflows import ids

READ_QUEUE_ACTIVITY: Final = "consume_queue"
"""The activity whose heartbeat counts."""
_RECORDS_ADAPTER: Final = TypeAdapter(tuple[EventRecord, ...])


@dataclass(frozen=True)
class NodeEvents:
    nodeclaim: NodeClaimSummary
    records: tuple[EventRecord, ...]


class NodeEventReader:
    def __init__(self, client: Client, cluster: str) -> None:
        self._client, self._cluster = client, cluster

    async def list_node_events(self, after: datetime) -> list[NodeEvents]:
        """Nodes that heard something: those that live, and those that ended since then. One list, whatever their
        number."""
        condition = f"(ExecutionStatus = 'Running' OR CloseTime >= '{after.astimezone(UTC).isoformat()}')"
        found = await NodeClaimVisibility(self._client, self._cluster).list_runs(condition)
        memos = {one.id: one for one in found if MEMO in one.raw_info.memo.fields}
        nodeclaims = [one for one in merge_runs(found) if one.workflow_id in memos]
        return [NodeEvents(nodeclaim, await _read_records(memos[nodeclaim.workflow_id])) for nodeclaim in nodeclaims]

    async def has_node(self, name: str) -> bool:
        """Whether a node of that name lives, or lived."""
        return any(
            nodeclaim.is_called(name) for nodeclaim in await NodeClaimVisibility(self._client, self._cluster).list_all()
        )

    async def read_message_counts(self) -> MessageCounts | None:
        """None where no queue is read at present."""
        handle = self._client.get_workflow_handle(ids.interruption(self._cluster))
        try:
            description = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        for activity in description.raw_description.pending_activities:
            if activity.activity_type.name == READ_QUEUE_ACTIVITY and activity.heartbeat_details.payloads:
                details = await self._client.data_converter.decode(activity.heartbeat_details.payloads)
                return _parse_message_counts(details[0])
        return None


async def _read_records(execution: WorkflowExecution) -> tuple[EventRecord, ...]:
    """What a newer version wrote, and this one cannot read, is left out."""
    try:
        memo: Mapping[str, object] = await execution.memo()
        return _RECORDS_ADAPTER.validate_python(memo[MEMO])
    except ValidationError:
        return ()


def _parse_message_counts(payload: object) -> MessageCounts | None:
    try:
        return MessageCounts.model_validate(payload)
    except ValidationError:
        return None


app = typer.Typer(add_completion=False)

Name = Annotated[str, typer.Argument(help="A node by its NodeClaim, its Node or its instance; all of them without it.")]
Pool = Annotated[str, typer.Option("--nodepool", help="Nodes of this NodePool alone.")]
Since = Annotated[str, typer.Option("--since", help="What was heard since then, such as 30m, 24h or 168h.")]
_DROPPED: Final = {
    "repeated": "repeats",
    "foreign": "about instances of nobody's",
    "over": "about nodes that are gone or going",
    "unwanted": "about what concerns no node",
    "unknown": "of an unknown kind",
    "malformed": "that cannot be read",
}
"""By the words of tenure_interruption_messages_dropped_total."""


@app.command()
@with_connection
def events(
    connection: Connection,
    name: Name = "",
    nodepool: Pool = "",
    since: Since = "24h",
    output: Output = "table",
) -> None:
    """List what AWS said of instances: for which node, under which policy, and what was done.

    What still waits is listed however old it is. Below stands what became of the queue's other messages.
    """
    asyncio.run(_print_node_events(connection, name, nodepool, parse_span(since), output))


def parse_span(text: str, command: str = "events") -> timedelta:
    """Raises `Refused` for what is no length of time."""
    try:
        span = parse_duration(text)
    except DurationError as error:
        raise UsageError(f"{command}: --since: {error}") from error
    if span is None or span <= timedelta(0):
        raise UsageError(f"{command}: --since {text}: write a length of time, such as 30m, 24h or 168h")
    return span


async def _print_node_events(connection: Connection, name: str, pool: str, span: timedelta, output: str) -> None:
    reader = NodeEventReader(await connection.connect(), connection.cluster)
    after = datetime.now(UTC) - span
    node_events, message_counts = await asyncio.gather(reader.list_node_events(after), reader.read_message_counts())
    found = [one for one in node_events if _is_selected(one.nodeclaim, name, pool)]
    if name and not found and not await reader.has_node(name):
        hint = "`tenure get` lists the nodes, `tenure events` without a name all that was said"
        raise UsageError(
            f"events {name}: no NodeClaim, Node or instance of this name in cluster {connection.cluster}; {hint}"
        )
    rows = select_rows(found, after)
    if output == "json":
        print_result(output, as_json(rows, message_counts))
        return
    print_events(
        make_console(), rows, message_counts, about=name or (f"the nodes of {pool}" if pool else ""), after=after
    )


def _is_selected(nodeclaim: NodeClaimSummary, name: str, pool: str) -> bool:
    return (not name or nodeclaim.is_called(name)) and (not pool or nodeclaim.pool == pool)


def select_rows(node_events: Sequence[NodeEvents], after: datetime) -> list[tuple[NodeClaimSummary, EventRecord]]:
    """Oldest first: what was heard since then, and what a node that lives still waits for."""
    rows = [
        (one.nodeclaim, record)
        for one in node_events
        for record in one.records
        if record.received_at >= after or (one.nodeclaim.open and record.waits)
    ]
    return sorted(rows, key=lambda row: (row[1].received_at, row[0].name))


def print_events(
    out: Console,
    rows: Sequence[tuple[NodeClaimSummary, EventRecord]],
    message_counts: MessageCounts | None,
    *,
    about: str,
    after: datetime,
) -> None:
    if rows:
        out.print(_events_table(rows))
    else:
        out.print(f"AWS said nothing of {about or 'any node'} since {_format_time(after)}.")
    out.print(_format_message_counts(message_counts), soft_wrap=True)


def _events_table(rows: Sequence[tuple[NodeClaimSummary, EventRecord]]) -> Table:
    table = Table(expand=False)
    for name in ("heard", "event", "AWS acts"):
        table.add_column(name, overflow="fold")
    for name in ("NodeClaim", "instance", "NodePool"):
        table.add_column(name, overflow="fold", min_width=8)
    table.add_column("policy", overflow="fold")
    table.add_column("what was done", overflow="fold", min_width=20)
    for nodeclaim, record in rows:
        event = f"{record.kind} {record.code}".rstrip()
        policy = f"{record.policy or 'none'}: {record.action}"
        acts = _format_time(record.starts) if record.starts else "-"
        who = (nodeclaim.name, nodeclaim.instance_id or "-", nodeclaim.pool or "-")
        table.add_row(_format_time(record.received_at), event, acts, *who, policy, describe_outcome(nodeclaim, record))
    return table


def describe_outcome(nodeclaim: NodeClaimSummary, record: EventRecord) -> str:
    """What was done, and whether the node is there still."""
    if nodeclaim.open:
        since = "" if record.since == record.received_at else f" (since {_format_time(record.since)})"
        return f"{record.done}{since}"
    return f"{_describe_final_outcome(record)}; the node is gone since {_format_time(nodeclaim.since)}"


def _describe_final_outcome(record: EventRecord) -> str:
    """Nothing is waited for any more once the node is gone."""
    return f"it waited: {record.done}" if record.waits else record.done


def _format_message_counts(message_counts: MessageCounts | None) -> str:
    if message_counts is None:
        return "The queue is not read at present: `tenure doctor` says why; INTERRUPTION_QUEUE may not be set."
    dropped = [
        f"{message_counts.counts[why]} {text}" for why, text in _DROPPED.items() if message_counts.counts.get(why)
    ]
    of_use = message_counts.counts.get("deleted", 0) - sum(message_counts.counts.get(why, 0) for why in _DROPPED)
    parts = [f"{message_counts.counts.get('received', 0)} received", f"{max(0, of_use)} told to nodes", *dropped]
    return f"The queue's messages since {_format_time(message_counts.since)}: {', '.join(parts)}."


def as_json(
    rows: Sequence[tuple[NodeClaimSummary, EventRecord]], message_counts: MessageCounts | None
) -> dict[str, Any]:
    """For scripts: every field, times in ISO 8601."""
    return {
        "events": [
            {
                "nodeClaim": nodeclaim.name,
                "node": nodeclaim.node_name,
                "instance": nodeclaim.instance_id,
                "nodePool": nodeclaim.pool,
                "open": nodeclaim.open,
                **record.model_dump(mode="json"),
            }
            for nodeclaim, record in rows
        ],
        "messages": message_counts.model_dump(mode="json") if message_counts else None,
    }


def _format_time(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S") if at else "-"
