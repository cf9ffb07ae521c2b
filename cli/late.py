"""What waits for a person besides nodes: roll-outs that go no further, commands past their deadlines. For `stuck`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.table import Table
from temporalio.client import Client, WorkflowExecution

from cli.spans import span
from policy.giving_up import is_late
from workflows import attributes, ids


@dataclass(frozen=True)
class Late:
    what: str
    step: str
    since: datetime | None
    blocked_by: str


async def all_late(client: Client, cluster: str, now: datetime) -> list[Late]:
    """Roll-outs first, each as visibility shows it."""
    pools = ids.nodepool(cluster, "")
    halted = f"WorkflowType = 'NodePoolWorkflow' AND {attributes.OVERDUE.name} = true AND {_running(pools)}"
    commands = f"WorkflowType = 'DisruptionWorkflow' AND {_running(ids.disruption(cluster, ''))}"
    rollouts = [rollout_of(one) async for one in client.list_workflows(halted, page_size=1000)]
    found = [command_of(one, now) async for one in client.list_workflows(commands, page_size=1000)]
    return [*rollouts, *(one for one in found if one)]


def _running(prefix: str) -> str:
    return f"WorkflowId STARTS_WITH '{prefix}' AND ExecutionStatus = 'Running'"


def rollout_of(execution: WorkflowExecution) -> Late:
    found = execution.typed_search_attributes
    why = found.get(attributes.BLOCKED_BY) or "its workflow says more"
    return Late(f"roll-out of NodePool {_name(execution)}", "-", None, why)


def command_of(execution: WorkflowExecution, now: datetime) -> Late | None:
    """None for one that goes its way."""
    found = execution.typed_search_attributes
    step, since = found.get(attributes.PHASE) or "", found.get(attributes.PHASE_SINCE)
    if not is_late(step, since, found.get(attributes.DEADLINE), now):
        return None
    return Late(f"command {_name(execution)}", step, since, found.get(attributes.BLOCKED_BY) or "-")


def _name(execution: WorkflowExecution) -> str:
    return execution.id.rpartition("/")[2]


def table_of(late: Sequence[Late], now: datetime) -> Table:
    table = Table(title="Stopped, or late", title_justify="left", expand=False)
    for name in ("what", "step", "since"):
        table.add_column(name, no_wrap=True)
    table.add_column("blocked by", overflow="fold")
    for one in late:
        since = f"{span(now - one.since)} ago" if one.since else "-"
        table.add_row(one.what, one.step, since, one.blocked_by)
    return table
