"""`tenure stuck`: overdue nodes, rollouts and commands with what follows; slow nodes apart, and pauses.

A slow node takes longer than similar nodes did, and is within its deadline: it is listed, and is no failure.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from tenure.cli.console import PrintableTable, folded, make_table, unwrapped
from tenure.cli.exit_codes import DONE, FAILED
from tenure.cli.nodes.durations import format_since, format_span, format_until
from tenure.cli.nodes.workflows import NodeClaimSummary, NodeClaimVisibility, as_json
from tenure.cli.output import Result
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.model.base import Message
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.model.signals import Pause
from tenure.policy.disruption.commands import is_late
from tenure.policy.lifecycle.deadlines import FIX_HOOK, SLOW, WAITS_FOR_A_PERSON, action_of
from tenure.policy.lifecycle.pauses import describe_pause
from workflows import ids, search_attributes

RUNNING = "ExecutionStatus = 'Running'"
OVERDUE = f"(TenureOverdue = true OR TenureBlockedBy STARTS_WITH '{WAITS_FOR_A_PERSON}: {FIX_HOOK}') AND {RUNNING}"
"""A failed hook blocks its node before the deadline too."""
SLOW_ONES = f"TenureBlockedBy STARTS_WITH '{SLOW}: ' AND {RUNNING}"
MAX_QUERIES = 50
"""Workflows that are queried for their pause or their next action."""
_QUERY_TIMEOUT = timedelta(seconds=2)


@temporal_command
async def stuck(connection: Connection) -> Result:
    """List overdue nodes, rollouts and commands, and slow nodes. Exit code 1 when one is overdue."""
    now = datetime.now(UTC)
    overdue, slow, follows, paused = await find_stuck_nodes(connection)
    overdue_items = await list_overdue_items(await connection.connect(), connection.cluster, now)
    return stuck_result(overdue, slow, follows, paused, overdue_items, now)


@dataclass(frozen=True)
class OverdueItem:
    what: str
    step: str
    since: datetime | None
    blocked_by: str


async def list_overdue_items(client: Client, cluster: str, now: datetime) -> list[OverdueItem]:
    """From visibility; rollouts first."""
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
    """None for a command within its deadline."""
    found = execution.typed_search_attributes
    step, since = found.get(search_attributes.PHASE) or "", found.get(search_attributes.PHASE_SINCE)
    if not is_late(step, since, found.get(search_attributes.DEADLINE), now):
        return None
    return OverdueItem(f"command {_short_name(execution)}", step, since, found.get(search_attributes.BLOCKED_BY) or "-")


def _short_name(execution: WorkflowExecution) -> str:
    return execution.id.rpartition("/")[2]


def overdue_items_table(overdue_items: Sequence[OverdueItem], now: datetime) -> PrintableTable:
    return make_table(
        *unwrapped("what", "step", "since"),
        *folded("blocked by"),
        rows=(
            (one.what, one.step, f"{format_span(now - one.since)} ago" if one.since else "-", one.blocked_by)
            for one in overdue_items
        ),
        title="Stopped, or late",
    )


@dataclass(frozen=True)
class PausedObject:
    what: str
    pause: Pause | None = None
    """None: its workflow did not answer."""


class _PausedState(Message):
    """The part of any workflow's state that holds its pause."""

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


def paused_table(paused: Sequence[PausedObject]) -> PrintableTable:
    return make_table(
        *unwrapped("what"),
        *folded("why"),
        rows=((one.what, describe_pause(one.pause) if one.pause else "its workflow does not answer") for one in paused),
        title="Paused",
    )


async def find_stuck_nodes(
    connection: Connection,
) -> tuple[list[NodeClaimSummary], list[NodeClaimSummary], dict[str, str], list[PausedObject]]:
    """Overdue nodes, slow nodes, the next action by workflow ID of the overdue ones, and paused objects."""
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


def stuck_result(
    overdue: Sequence[NodeClaimSummary],
    slow: Sequence[NodeClaimSummary],
    follows: Mapping[str, str],
    paused: Sequence[PausedObject],
    overdue_items: Sequence[OverdueItem],
    now: datetime,
) -> Result:
    """`follows`: the next action by workflow ID; absent where no worker answered."""
    data = {
        "overdue": [{**as_json(one), "action": follows.get(one.workflow_id)} for one in overdue],
        "slow": [as_json(one) for one in slow],
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
    parts: list[object] = [_nodes_table("Overdue", overdue, now, follows) if overdue else "No node is overdue."]
    parts += [overdue_items_table(overdue_items, now)] if overdue_items else []
    parts += [_nodes_table("Slow, and within their deadlines", slow, now)] if slow else []
    parts += [paused_table(paused)] if paused else []
    return Result(data, parts, FAILED if overdue or overdue_items else DONE)


def _nodes_table(
    title: str, nodeclaims: Sequence[NodeClaimSummary], now: datetime, follows: Mapping[str, str] | None = None
) -> PrintableTable:
    action = [] if follows is None else ["action"]
    return make_table(
        *unwrapped("NodeClaim", "NodePool", "type", "phase", "since", "deadline", *action),
        *folded("blocked by"),
        rows=(
            (
                one.name,
                one.pool or "-",
                one.instance_type or "-",
                one.phase,
                format_since(one, now),
                format_until(one, now),
                *([] if follows is None else [follows.get(one.workflow_id, "-")]),
                one.blocked_by or "-",
            )
            for one in nodeclaims
        ),
        title=title,
    )
