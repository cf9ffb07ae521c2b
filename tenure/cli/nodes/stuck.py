"""`tenure stuck`: the nodes that are past the deadline of their phase, or wait for a hook that failed, and what each
waits for; roll-outs and commands that wait for a person; slow nodes apart, and what people have paused.

A slow node takes longer than such nodes have taken so far, and is within its deadline: it is shown, and is no alarm.

What waits for a person besides nodes: roll-outs that go no further, commands past their deadlines. For `stuck`.

What is paused: asked of visibility, and of the workflows for who, until when and why. For `stuck`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from tenure.cli.console import make_console
from tenure.cli.nodes.durations import format_since, format_span, format_until
from tenure.cli.nodes.workflows import NodeClaimSummary, NodeClaimVisibility, as_json
from tenure.cli.output import Output, print_result
from tenure.cli.temporal_client import Connection, with_connection
from tenure.model.base import Message
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.model.signals import Pause
from tenure.policy.disruption.commands import is_late
from tenure.policy.lifecycle.deadlines import FIX_HOOK, SLOW, WAITS_FOR_A_PERSON, action_of
from tenure.policy.lifecycle.pauses import describe_pause
from workflows import ids, search_attributes


@dataclass(frozen=True)
class OverdueItem:
    what: str
    step: str
    since: datetime | None
    blocked_by: str


async def list_overdue_items(client: Client, cluster: str, now: datetime) -> list[OverdueItem]:
    """Roll-outs first, each as visibility shows it."""
    pools = ids.nodepool(cluster, "")
    halted = f"WorkflowType = 'NodePool' AND {search_attributes.OVERDUE.name} = true AND {_running_condition(pools)}"
    commands = f"WorkflowType = 'Disruption' AND {_running_condition(ids.disruption(cluster, ''))}"
    rollouts = [rollout_item(one) async for one in client.list_workflows(halted, page_size=1000)]
    found = [command_item(one, now) async for one in client.list_workflows(commands, page_size=1000)]
    return [*rollouts, *(one for one in found if one)]


def _running_condition(prefix: str) -> str:
    return f"WorkflowId STARTS_WITH '{prefix}' AND ExecutionStatus = 'Running'"


def rollout_item(execution: WorkflowExecution) -> OverdueItem:
    found = execution.typed_search_attributes
    why = found.get(search_attributes.BLOCKED_BY) or "its workflow says more"
    return OverdueItem(f"roll-out of NodePool {_short_name(execution)}", "-", None, why)


def command_item(execution: WorkflowExecution, now: datetime) -> OverdueItem | None:
    """None for one that goes its way."""
    found = execution.typed_search_attributes
    step, since = found.get(search_attributes.PHASE) or "", found.get(search_attributes.PHASE_SINCE)
    if not is_late(step, since, found.get(search_attributes.DEADLINE), now):
        return None
    return OverdueItem(f"command {_short_name(execution)}", step, since, found.get(search_attributes.BLOCKED_BY) or "-")


def _short_name(execution: WorkflowExecution) -> str:
    return execution.id.rpartition("/")[2]


def overdue_items_table(overdue_items: Sequence[OverdueItem], now: datetime) -> Table:
    table = Table(title="Stopped, or late", title_justify="left", expand=False)
    for name in ("what", "step", "since"):
        table.add_column(name, no_wrap=True)
    table.add_column("blocked by", overflow="fold")
    for one in overdue_items:
        since = f"{format_span(now - one.since)} ago" if one.since else "-"
        table.add_row(one.what, one.step, since, one.blocked_by)
    return table


MAX_QUERIES = 50
"""Workflows that are asked who paused them."""
_QUERY_TIMEOUT = timedelta(seconds=2)


@dataclass(frozen=True)
class PausedObject:
    what: str
    pause: Pause | None = None
    """None: its workflow did not answer."""


class _PausedState(Message):
    """The part of any state that says so."""

    pause: Pause | None = None


async def list_paused_objects(client: Client, cluster: str) -> list[PausedObject]:
    """The cluster, NodePools and nodes that people paused."""
    query = f"TenurePaused = true AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{cluster}/'"
    found = sorted([one.id async for one in client.list_workflows(query, page_size=1000)])
    pauses = await asyncio.gather(*(_query_pause(client, one) for one in found[:MAX_QUERIES]))
    results = [*pauses, *([None] * (len(found) - len(pauses)))]
    return [PausedObject(paused_object_name(one, cluster), pause) for one, pause in zip(found, results, strict=True)]


async def _query_pause(client: Client, workflow_id: str) -> Pause | None:
    handle = client.get_workflow_handle(workflow_id)
    try:
        state: _PausedState = await handle.query("state", result_type=_PausedState, rpc_timeout=_QUERY_TIMEOUT)
    except RPCError:
        return None
    return state.pause


def paused_object_name(workflow_id: str, cluster: str) -> str:
    """`NodePool gpu` for `demo/nodepool/gpu`."""
    kind, _, rest = workflow_id.removeprefix(f"{cluster}/").partition("/")
    name = rest.partition("/")[0]
    return {"nodepool": f"NodePool {name}", "nodeclaim": f"NodeClaim {name}", "cluster": "the cluster"}.get(kind, kind)


def paused_table(paused: Sequence[PausedObject]) -> Table:
    table = Table(title="Paused", title_justify="left", expand=False)
    table.add_column("what", no_wrap=True)
    table.add_column("why", overflow="fold")
    for one in paused:
        table.add_row(one.what, describe_pause(one.pause) if one.pause else "its workflow does not answer")
    return table


app = typer.Typer(add_completion=False)
RUNNING = "ExecutionStatus = 'Running'"
OVERDUE = f"(TenureOverdue = true OR TenureBlockedBy STARTS_WITH '{WAITS_FOR_A_PERSON}: {FIX_HOOK}') AND {RUNNING}"
"""Also what a hook that failed holds up, before the deadline."""
SLOW_ONES = f"TenureBlockedBy STARTS_WITH '{SLOW}: ' AND {RUNNING}"


@app.command()
@with_connection
def stuck(connection: Connection, output: Output = "table") -> int:
    """List nodes, roll-outs and commands that are overdue, and slow nodes. Exit code 1 when one is overdue."""
    return asyncio.run(_report_stuck(connection, output))


async def _report_stuck(connection: Connection, output: str) -> int:
    now = datetime.now(UTC)
    overdue, slow, follows, paused = await find_stuck_nodes(connection)
    overdue_items = await list_overdue_items(await connection.connect(), connection.cluster, now)
    if output == "json":
        print_result(output, stuck_as_json(overdue, slow, follows, paused, overdue_items))
        return int(bool(overdue or overdue_items))
    return print_stuck(make_console(), overdue, slow, follows, now, paused, overdue_items)


def stuck_as_json(
    overdue: Sequence[NodeClaimSummary],
    slow: Sequence[NodeClaimSummary],
    follows: Mapping[str, str],
    paused: Sequence[PausedObject] = (),
    overdue_items: Sequence[OverdueItem] = (),
) -> dict[str, Any]:
    """For scripts. `action`: what follows by itself, null where no worker says it."""
    return {
        "overdue": [{**as_json(nodeclaim), "action": follows.get(nodeclaim.workflow_id)} for nodeclaim in overdue],
        "slow": [as_json(nodeclaim) for nodeclaim in slow],
        "late": [
            {
                "what": one.what,
                "step": one.step,
                "since": one.since.isoformat() if one.since else None,
                "blockedBy": one.blocked_by,
            }
            for one in overdue_items
        ],
        "paused": [
            {"what": one.what, "pause": one.pause.model_dump(mode="json") if one.pause else None} for one in paused
        ],
    }


async def find_stuck_nodes(
    connection: Connection,
) -> tuple[list[NodeClaimSummary], list[NodeClaimSummary], dict[str, str], list[PausedObject]]:
    """Overdue ones, slow ones, what follows for the first by workflow id as far as a worker answers; what is paused."""
    client = await connection.connect()
    visibility = NodeClaimVisibility(client, connection.cluster)
    overdue, slow = await visibility.list_all(OVERDUE), await visibility.list_all(SLOW_ONES)
    actions = await asyncio.gather(*(_query_action(client, nodeclaim) for nodeclaim in overdue[:MAX_QUERIES]))
    follows = {nodeclaim.workflow_id: action for nodeclaim, action in zip(overdue, actions, strict=False) if action}
    return overdue, slow, follows, await list_paused_objects(client, connection.cluster)


async def _query_action(client: Client, nodeclaim: NodeClaimSummary) -> str:
    try:
        state = await client.get_workflow_handle(nodeclaim.workflow_id).query(
            "state", result_type=NodeClaimState, rpc_timeout=_QUERY_TIMEOUT
        )
    except RPCError:
        return ""
    return action_of(state.observed.rules, state.phase)


def print_stuck(
    out: Console,
    overdue: Sequence[NodeClaimSummary],
    slow: Sequence[NodeClaimSummary],
    follows: Mapping[str, str],
    now: datetime,
    paused: Sequence[PausedObject] = (),
    overdue_items: Sequence[OverdueItem] = (),
) -> int:
    """The exit code."""
    if overdue:
        out.print(_nodes_table("Overdue", overdue, now, follows))
    else:
        out.print("No node is overdue.")
    if overdue_items:
        out.print(overdue_items_table(overdue_items, now))
    if slow:
        out.print(_nodes_table("Slow, and within their deadlines", slow, now))
    if paused:
        out.print(paused_table(paused))
    return 1 if overdue or overdue_items else 0


def _nodes_table(
    title: str, nodeclaims: Sequence[NodeClaimSummary], now: datetime, follows: Mapping[str, str] | None = None
) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    names = ["NodeClaim", "NodePool", "type", "phase", "since", "deadline"]
    for name in (*names, "action") if follows is not None else names:
        table.add_column(name, no_wrap=True)
    table.add_column("blocked by", overflow="fold")
    for nodeclaim in nodeclaims:
        cells = [
            nodeclaim.name,
            nodeclaim.pool or "-",
            nodeclaim.instance_type or "-",
            nodeclaim.phase,
            format_since(nodeclaim, now),
            format_until(nodeclaim, now),
        ]
        if follows is not None:
            cells.append(follows.get(nodeclaim.workflow_id, "-"))
        table.add_row(*cells, nodeclaim.blocked_by or "-")
    return table
