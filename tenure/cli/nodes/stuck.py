"""`tenure stuck`: nodes, pods, launches, rollouts, commands and EC2NodeClasses that need an operator, with their
remedies; slow nodes separately, and pauses.

A slow node takes longer than similar nodes did and is within its deadline. It is listed but does not change the exit
code.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecution

from tenure.cli.console import PrintableTable, folded, make_table, unwrapped
from tenure.cli.exit_codes import DONE, FAILED
from tenure.cli.nodes.why import query_disruption_status
from tenure.cli.nodes.workflows import (
    MAX_QUERIES,
    RESTARTED,
    NodeClaimSummary,
    NodeClaimVisibility,
    PageUrl,
    StoppedWorkflow,
    as_json,
    format_iso,
    format_links,
    format_since,
    format_span,
    format_until,
    list_commands,
    list_stopped_workflows,
    no_page_url,
    query_states,
    running_condition,
    with_verdict,
)
from tenure.cli.output import Result
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.controller.temporal.queries import query_invalid_objects
from tenure.model.base import Message
from tenure.model.blockers import NEEDS_ATTENTION, NODEPOOL_NOT_READY, SLOW
from tenure.model.errors import InvalidObject
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.model.observations import Registrations
from tenure.model.operator_requests import PendingPodGroup
from tenure.model.signals import Pause
from tenure.model.workflow_states import NodeClassState
from tenure.policy.disruption.commands import is_late
from tenure.policy.lifecycle.deadlines import action_of
from tenure.policy.lifecycle.pauses import describe_pause
from tenure.policy.lifecycle.verdict import NEEDS_ATTENTION_TEXT, verdict_of
from tenure.policy.nodepool import decide_healthy
from workflows import ids, search_attributes

RUNNING = "ExecutionStatus = 'Running'"
NEEDING_ATTENTION = f"(TenureOverdue = true OR TenureBlockedBy IN {NEEDS_ATTENTION}) AND {RUNNING}"
"""Blockers that do not clear by themselves, and phases past their deadlines."""
SLOW_ONES = f"TenureBlockedBy = '{SLOW}' AND {RUNNING}"
PENDING_PODS_TIMEOUT = timedelta(seconds=10)


@temporal_command
async def stuck(connection: Connection) -> Result:
    """List all that needs attention, with remedies. These are nodes and pending pods whose blocker does not clear by
    itself, and overdue nodes, rollouts and commands. NodePools and EC2NodeClasses that are not ready, invalid objects
    and terminated workflows belong to them. The exit code is 1 if one of these is listed, or if pending pods cannot be
    checked. Slow nodes and pauses are listed, but do not count."""
    now = datetime.now(UTC)
    client, cluster = await connection.connect_to_cluster(), connection.cluster
    (overdue, slow, follows, paused), items, stopped, invalid, pods = await asyncio.gather(
        find_stuck_nodes(client, cluster, connection.page_url),
        list_stuck_items(client, cluster, now),
        list_stopped_workflows(client, cluster),
        query_invalid_objects(client, cluster),
        query_disruption_status(client, cluster, pending_pods=True, timeout=PENDING_PODS_TIMEOUT),
    )
    items += [
        *(not_ready_item(*one) for one in pods.nodepools_not_ready.items()),
        *(stopped_item(one) for one in stopped),
        *(pending_pod_item(one) for one in pods.pending_pods),
    ]
    return stuck_result(overdue, slow, follows, paused, items, now, invalid.objects, pods.blocked)


@dataclass(frozen=True)
class StuckItem:
    what: str
    step: str
    since: datetime | None
    blocked_by: str
    """What the table shows."""
    code: str = ""
    sentence: str = ""
    """Of the verdict, without the remedy; empty if it is the same as `blocked_by`."""


async def list_stuck_items(client: Client, cluster: str, now: datetime) -> list[StuckItem]:
    """From visibility; rollouts first, EC2NodeClasses that are not ready last."""
    pools = ids.nodepool(cluster, "")
    classes = f"WorkflowType = 'EC2NodeClass' AND {running_condition(ids.nodeclass(cluster, ''))}"
    nodepools = f"WorkflowType = 'NodePool' AND {running_condition(pools)}"
    under_way = await list_commands(client, cluster)
    nodeclasses = [one.id async for one in client.list_workflows(classes, page_size=1000)]
    found_pools = [one async for one in client.list_workflows(nodepools, page_size=1000)]
    rollouts = [one for one in found_pools if one.typed_search_attributes.get(search_attributes.OVERDUE)]
    states, nodeclass_states, nodepool_states = await asyncio.gather(
        query_states(client, [one.id for one in (*rollouts, *under_way)], BlockedState),
        query_states(client, nodeclasses, NodeClassState),
        query_states(client, [one.id for one in found_pools], RegistrationState),
    )
    found = [command_item(one, states.get(one.id), now) for one in under_way]
    return [
        *(rollout_item(one, states.get(one.id)) for one in rollouts),
        *(one for one in found if one),
        *(one for state in nodepool_states.values() if (one := nodepool_item(state))),
        *(nodeclass_item(one) for one in nodeclass_states.values() if one.ready == "False"),
    ]


def stopped_item(stopped: StoppedWorkflow) -> StuckItem:
    return StuckItem(f"workflow {stopped.workflow_id}", "-", stopped.ended_at, f"{stopped.status}; {RESTARTED}")


class BlockedState(Message):
    """The part of a NodePool's or command's state that names its blocker."""

    blocked_by: str = ""
    rollout_blocked_by: str = ""


class RegistrationState(Message):
    """The part of a NodePool's state that shows whether its nodes start."""

    name: str
    registrations: Registrations = Registrations()


def nodepool_item(state: RegistrationState) -> StuckItem | None:
    """None for a NodePool whose nodes start."""
    healthy, reason, message = decide_healthy(state.registrations)
    return StuckItem(f"NodePool {state.name}", "-", None, message, reason) if healthy == "False" else None


def not_ready_item(nodepool: str, messages: Mapping[str, str]) -> StuckItem:
    """`messages`: by condition that is False, such as ValidationSucceeded."""
    why = "; ".join(f"{condition}: {message}" for condition, message in messages.items())
    return StuckItem(f"NodePool {nodepool}", "-", None, why, NODEPOOL_NOT_READY)


def pending_pod_item(group: PendingPodGroup) -> StuckItem:
    verdict = group.verdict
    why = f"{NEEDS_ATTENTION_TEXT}: {verdict.remedy}; {verdict.message}"
    return StuckItem(
        f"pod {_with_others(group.pod, group.pods)}", "Scheduling", verdict.since, why, verdict.code, verdict.sentence
    )


def _with_others(name: str, number: int) -> str:
    return f"{name} and {number - 1} more" if number > 1 else name


def nodeclass_item(state: NodeClassState) -> StuckItem:
    return StuckItem(f"EC2NodeClass {state.name}", "-", state.failing_since, state.message)


def rollout_item(execution: WorkflowExecution, state: BlockedState | None) -> StuckItem:
    code = execution.typed_search_attributes.get(search_attributes.BLOCKED_BY) or ""
    message = state.rollout_blocked_by if state else ""
    why = f"{NEEDS_ATTENTION_TEXT}: {message}" if message else code or "see its workflow"
    return StuckItem(f"rollout of NodePool {_short_name(execution)}", "-", None, why, code, message)


def command_item(execution: WorkflowExecution, state: BlockedState | None, now: datetime) -> StuckItem | None:
    """None for a command within its deadline."""
    found = execution.typed_search_attributes
    step, since = found.get(search_attributes.PHASE) or "", found.get(search_attributes.PHASE_SINCE)
    if not is_late(step, since, found.get(search_attributes.DEADLINE), now):
        return None
    code = found.get(search_attributes.BLOCKED_BY) or ""
    why = (state.blocked_by if state else "") or code or "-"
    return StuckItem(f"command {_short_name(execution)}", step, since, why, code)


def _short_name(execution: WorkflowExecution) -> str:
    return execution.id.rpartition("/")[2]


def stuck_items_table(items: Sequence[StuckItem], now: datetime) -> PrintableTable:
    return make_table(
        *unwrapped("object", "step", "since"),
        *folded("blocked by"),
        rows=(
            (one.what, one.step, f"{format_span(now - one.since)} ago" if one.since else "-", one.blocked_by)
            for one in items
        ),
        title="Other objects that need attention",
    )


@dataclass(frozen=True)
class PausedObject:
    what: str
    pause: Pause | None = None
    """None if its workflow did not respond."""


class _PausedState(Message):
    """The part of any workflow's state that holds its pause."""

    pause: Pause | None = None


async def list_paused_objects(client: Client, cluster: str) -> list[PausedObject]:
    """The cluster, NodePools and nodes that users paused."""
    query = f"TenurePaused = true AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{cluster}/'"
    found = sorted([one.id async for one in client.list_workflows(query, page_size=1000)])
    states = await query_states(client, found[:MAX_QUERIES], _PausedState)
    pauses = {workflow_id: state.pause for workflow_id, state in states.items()}
    return [PausedObject(paused_object_name(one, cluster), pauses.get(one)) for one in found]


def paused_object_name(workflow_id: str, cluster: str) -> str:
    """`NodePool gpu` for `demo/nodepool/gpu`."""
    kind, _, rest = workflow_id.removeprefix(f"{cluster}/").partition("/")
    name = rest.partition("/")[0]
    return {"nodepool": f"NodePool {name}", "nodeclaim": f"NodeClaim {name}", "cluster": "the cluster"}.get(kind, kind)


def paused_table(paused: Sequence[PausedObject]) -> PrintableTable:
    return make_table(
        *unwrapped("object"),
        *folded("pause"),
        rows=((one.what, describe_pause(one.pause) if one.pause else "its workflow did not respond") for one in paused),
        title="Paused",
    )


async def find_stuck_nodes(
    client: Client, cluster: str, page_url: PageUrl = no_page_url
) -> tuple[list[NodeClaimSummary], list[NodeClaimSummary], dict[str, str], list[PausedObject]]:
    """Nodes that need attention, slow nodes, the action at the deadline by workflow ID, and paused objects."""
    visibility = NodeClaimVisibility(client, cluster, page_url)
    overdue, slow = await visibility.list_all(NEEDING_ATTENTION), await visibility.list_all(SLOW_ONES)
    queried = [one.workflow_id for one in (*overdue, *slow)][:MAX_QUERIES]
    states = await query_states(client, queried, NodeClaimState)
    follows: dict[str, str] = {one: action_of(state.observed.rules, state.phase) for one, state in states.items()}
    verdicts = {workflow_id: verdict_of(state) for workflow_id, state in states.items()}
    overdue, slow = (
        [with_verdict(one, verdicts.get(one.workflow_id)) for one in nodeclaims] for nodeclaims in (overdue, slow)
    )
    return overdue, slow, follows, await list_paused_objects(client, cluster)


def stuck_result(
    overdue: Sequence[NodeClaimSummary],
    slow: Sequence[NodeClaimSummary],
    follows: Mapping[str, str],
    paused: Sequence[PausedObject],
    items: Sequence[StuckItem],
    now: datetime,
    invalid: Sequence[InvalidObject] = (),
    pods_unknown: str = "",
) -> Result:
    """`follows`: the next action by workflow ID; absent if no worker responded. `pods_unknown`: why pending pods could
    not be checked."""
    data = {
        "overdue": [{**as_json(one), "action": follows.get(one.workflow_id)} for one in overdue],
        "slow": [as_json(one) for one in slow],
        "late": [
            {
                "what": one.what,
                "step": one.step,
                "since": format_iso(one.since),
                "blockedBy": one.blocked_by,
                "code": one.code,
                "sentence": one.sentence or one.blocked_by,
            }
            for one in items
        ],
        "paused": [
            {"what": one.what, "pause": one.pause.model_dump(mode="json") if one.pause else None} for one in paused
        ],
        "invalidObjects": [one.model_dump() for one in invalid],
        "podsUnknown": pods_unknown,
    }
    parts: list[object] = [
        _nodes_table("Need attention", overdue, now, follows) if overdue else "No node needs attention."
    ]
    parts += [stuck_items_table(items, now)] if items else []
    parts += [_nodes_table("Slow, within their deadlines", slow, now)] if slow else []
    parts += format_links([*overdue, *slow])
    parts += [paused_table(paused)] if paused else []
    parts += [_invalid_objects_table(invalid)] if invalid else []
    parts += [f"Pending pods are unknown: {pods_unknown}"] if pods_unknown else []
    return Result(data, parts, FAILED if overdue or items or invalid or pods_unknown else DONE)


def _invalid_objects_table(invalid: Sequence[InvalidObject]) -> PrintableTable:
    return make_table(
        *unwrapped("kind", "name"),
        *folded("problem"),
        rows=((one.kind, one.name, one.message) for one in invalid),
        title="Invalid objects",
    )


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
                one.blocker or "-",
            )
            for one in nodeclaims
        ),
        title=title,
    )
