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
from tenure.cli.console import console
from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.workflows import Lives, NodeLife, merge
from tenure.cli.output import Output, answer
from tenure.cli.temporal_client import Connection, connected
from tenure.model.interruption.records import MEMO, EventRecord, Tally
from workflows import ids

READS: Final = "read_queue"
"""The activity whose heartbeat counts."""
_MANY: Final = TypeAdapter(tuple[EventRecord, ...])


@dataclass(frozen=True)
class Heard:
    life: NodeLife
    records: tuple[EventRecord, ...]


class Hearing:
    def __init__(self, client: Client, cluster: str) -> None:
        self._client, self._cluster = client, cluster

    async def lives(self, after: datetime) -> list[Heard]:
        """Nodes that heard something: those that live, and those that ended since then. One list, whatever their
        number."""
        lately = f"(ExecutionStatus = 'Running' OR CloseTime >= '{after.astimezone(UTC).isoformat()}')"
        found = await Lives(self._client, self._cluster).executions(lately)
        memos = {one.id: one for one in found if MEMO in one.raw_info.memo.fields}
        heard = [one for one in merge(found) if one.workflow_id in memos]
        return [Heard(life, await _records(memos[life.workflow_id])) for life in heard]

    async def knows(self, name: str) -> bool:
        """Whether a node of that name lives, or lived."""
        return any(life.is_called(name) for life in await Lives(self._client, self._cluster).all())

    async def tally(self) -> Tally | None:
        """None where no queue is read at present."""
        handle = self._client.get_workflow_handle(ids.interruption(self._cluster))
        try:
            description = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        for activity in description.raw_description.pending_activities:
            if activity.activity_type.name == READS and activity.heartbeat_details.payloads:
                told = await self._client.data_converter.decode(activity.heartbeat_details.payloads)
                return _tally(told[0])
        return None


async def _records(execution: WorkflowExecution) -> tuple[EventRecord, ...]:
    """What a newer version wrote, and this one cannot read, is left out."""
    try:
        memo: Mapping[str, object] = await execution.memo()
        return _MANY.validate_python(memo[MEMO])
    except ValidationError:
        return ()


def _tally(told: object) -> Tally | None:
    try:
        return Tally.model_validate(told)
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
@connected
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
    asyncio.run(_tell(connection, name, nodepool, span_of(since), output))


def span_of(text: str, command: str = "events") -> timedelta:
    """Raises `Refused` for what is no length of time."""
    try:
        span = parse_duration(text)
    except DurationError as error:
        raise Refused(f"{command}: --since: {error}") from error
    if span is None or span <= timedelta(0):
        raise Refused(f"{command}: --since {text}: write a length of time, such as 30m, 24h or 168h")
    return span


async def _tell(connection: Connection, name: str, pool: str, span: timedelta, output: str) -> None:
    hearing = Hearing(await connection.client(), connection.cluster)
    after = datetime.now(UTC) - span
    lives, tally = await asyncio.gather(hearing.lives(after), hearing.tally())
    found = [one for one in lives if _is_asked_for(one.life, name, pool)]
    if name and not found and not await hearing.knows(name):
        hint = "`tenure get` lists the nodes, `tenure events` without a name all that was said"
        raise Refused(
            f"events {name}: no NodeClaim, Node or instance of this name in cluster {connection.cluster}; {hint}"
        )
    rows = chosen(found, after)
    if output == "json":
        answer(output, as_json(rows, tally))
        return
    show(console(), rows, tally, about=name or (f"the nodes of {pool}" if pool else ""), after=after)


def _is_asked_for(life: NodeLife, name: str, pool: str) -> bool:
    return (not name or life.is_called(name)) and (not pool or life.pool == pool)


def chosen(lives: Sequence[Heard], after: datetime) -> list[tuple[NodeLife, EventRecord]]:
    """Oldest first: what was heard since then, and what a node that lives still waits for."""
    rows = [
        (one.life, record)
        for one in lives
        for record in one.records
        if record.heard >= after or (one.life.open and record.waits)
    ]
    return sorted(rows, key=lambda row: (row[1].heard, row[0].name))


def show(
    out: Console,
    rows: Sequence[tuple[NodeLife, EventRecord]],
    tally: Tally | None,
    *,
    about: str,
    after: datetime,
) -> None:
    if rows:
        out.print(_table(rows))
    else:
        out.print(f"AWS said nothing of {about or 'any node'} since {_moment(after)}.")
    out.print(_counts(tally), soft_wrap=True)


def _table(rows: Sequence[tuple[NodeLife, EventRecord]]) -> Table:
    table = Table(expand=False)
    for name in ("heard", "event", "AWS acts"):
        table.add_column(name, overflow="fold")
    for name in ("NodeClaim", "instance", "NodePool"):
        table.add_column(name, overflow="fold", min_width=8)
    table.add_column("policy", overflow="fold")
    table.add_column("what was done", overflow="fold", min_width=20)
    for life, record in rows:
        event = f"{record.kind} {record.code}".rstrip()
        policy = f"{record.policy or 'none'}: {record.action}"
        acts = _moment(record.starts) if record.starts else "-"
        who = (life.name, life.instance_id or "-", life.pool or "-")
        table.add_row(_moment(record.heard), event, acts, *who, policy, outcome(life, record))
    return table


def outcome(life: NodeLife, record: EventRecord) -> str:
    """What was done, and whether the node is there still."""
    if life.open:
        since = "" if record.since == record.heard else f" (since {_moment(record.since)})"
        return f"{record.done}{since}"
    return f"{_ended(record)}; the node is gone since {_moment(life.since)}"


def _ended(record: EventRecord) -> str:
    """Nothing is waited for any more once the node is gone."""
    return f"it waited: {record.done}" if record.waits else record.done


def _counts(tally: Tally | None) -> str:
    if tally is None:
        return "The queue is not read at present: `tenure doctor` says why; INTERRUPTION_QUEUE may not be set."
    dropped = [f"{tally.counts[why]} {words}" for why, words in _DROPPED.items() if tally.counts.get(why)]
    of_use = tally.counts.get("deleted", 0) - sum(tally.counts.get(why, 0) for why in _DROPPED)
    parts = [f"{tally.counts.get('received', 0)} received", f"{max(0, of_use)} told to nodes", *dropped]
    return f"The queue's messages since {_moment(tally.since)}: {', '.join(parts)}."


def as_json(rows: Sequence[tuple[NodeLife, EventRecord]], tally: Tally | None) -> dict[str, Any]:
    """For scripts: every field, times in ISO 8601."""
    return {
        "events": [
            {
                "nodeClaim": life.name,
                "node": life.node_name,
                "instance": life.instance_id,
                "nodePool": life.pool,
                "open": life.open,
                **record.model_dump(mode="json"),
            }
            for life, record in rows
        ],
        "messages": tally.model_dump(mode="json") if tally else None,
    }


def _moment(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment else "-"
