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

from tenure.cli.console import console
from tenure.cli.nodes.durations import since, span, until
from tenure.cli.nodes.workflows import Lives, NodeLife, as_json
from tenure.cli.output import Output, answer
from tenure.cli.temporal_client import Connection, connected
from tenure.model.base import Message
from tenure.model.nodeclaim_state import ClaimState
from tenure.model.signals import Pause
from tenure.policy.disruption.commands import is_late
from tenure.policy.lifecycle.deadlines import MEND_HOOK, SLOW, WAITS_FOR_A_PERSON, action_of
from tenure.policy.lifecycle.pauses import words
from workflows import ids, search_attributes


@dataclass(frozen=True)
class Late:
    what: str
    step: str
    since: datetime | None
    blocked_by: str


async def all_late(client: Client, cluster: str, now: datetime) -> list[Late]:
    """Roll-outs first, each as visibility shows it."""
    pools = ids.nodepool(cluster, "")
    halted = f"WorkflowType = 'NodePoolWorkflow' AND {search_attributes.OVERDUE.name} = true AND {_running(pools)}"
    commands = f"WorkflowType = 'DisruptionWorkflow' AND {_running(ids.disruption(cluster, ''))}"
    rollouts = [rollout_of(one) async for one in client.list_workflows(halted, page_size=1000)]
    found = [command_of(one, now) async for one in client.list_workflows(commands, page_size=1000)]
    return [*rollouts, *(one for one in found if one)]


def _running(prefix: str) -> str:
    return f"WorkflowId STARTS_WITH '{prefix}' AND ExecutionStatus = 'Running'"


def rollout_of(execution: WorkflowExecution) -> Late:
    found = execution.typed_search_attributes
    why = found.get(search_attributes.BLOCKED_BY) or "its workflow says more"
    return Late(f"roll-out of NodePool {_name(execution)}", "-", None, why)


def command_of(execution: WorkflowExecution, now: datetime) -> Late | None:
    """None for one that goes its way."""
    found = execution.typed_search_attributes
    step, since = found.get(search_attributes.PHASE) or "", found.get(search_attributes.PHASE_SINCE)
    if not is_late(step, since, found.get(search_attributes.DEADLINE), now):
        return None
    return Late(f"command {_name(execution)}", step, since, found.get(search_attributes.BLOCKED_BY) or "-")


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


ASKED = 50
"""Workflows that are asked who paused them."""
_PATIENCE = timedelta(seconds=2)


@dataclass(frozen=True)
class Paused:
    what: str
    pause: Pause | None = None
    """None: its workflow did not answer."""


class _Held(Message):
    """The part of any state that says so."""

    pause: Pause | None = None


async def all_paused(client: Client, cluster: str) -> list[Paused]:
    """The cluster, NodePools and nodes that people paused."""
    query = f"TenurePaused = true AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{cluster}/'"
    found = sorted([one.id async for one in client.list_workflows(query, page_size=1000)])
    held = await asyncio.gather(*(_held(client, one) for one in found[:ASKED]))
    answers = [*held, *([None] * (len(found) - len(held)))]
    return [Paused(name_of(one, cluster), pause) for one, pause in zip(found, answers, strict=True)]


async def _held(client: Client, workflow_id: str) -> Pause | None:
    handle = client.get_workflow_handle(workflow_id)
    try:
        held: _Held = await handle.query("state", result_type=_Held, rpc_timeout=_PATIENCE)
    except RPCError:
        return None
    return held.pause


def name_of(workflow_id: str, cluster: str) -> str:
    """`NodePool gpu` for `demo/nodepool/gpu`."""
    kind, _, rest = workflow_id.removeprefix(f"{cluster}/").partition("/")
    name = rest.partition("/")[0]
    return {"nodepool": f"NodePool {name}", "nodeclaim": f"NodeClaim {name}", "cluster": "the cluster"}.get(kind, kind)


def paused_table(paused: Sequence[Paused]) -> Table:
    table = Table(title="Paused", title_justify="left", expand=False)
    table.add_column("what", no_wrap=True)
    table.add_column("why", overflow="fold")
    for one in paused:
        table.add_row(one.what, words(one.pause) if one.pause else "its workflow does not answer")
    return table


app = typer.Typer(add_completion=False)
RUNNING = "ExecutionStatus = 'Running'"
OVERDUE = f"(TenureOverdue = true OR TenureBlockedBy STARTS_WITH '{WAITS_FOR_A_PERSON}: {MEND_HOOK}') AND {RUNNING}"
"""Also what a hook that failed holds up, before the deadline."""
SLOW_ONES = f"TenureBlockedBy STARTS_WITH '{SLOW}: ' AND {RUNNING}"


@app.command()
@connected
def stuck(connection: Connection, output: Output = "table") -> int:
    """List nodes, roll-outs and commands that are overdue, and slow nodes. Exit code 1 when one is overdue."""
    return asyncio.run(_stuck(connection, output))


async def _stuck(connection: Connection, output: str) -> int:
    now = datetime.now(UTC)
    overdue, slow, follows, paused = await find(connection)
    late = await all_late(await connection.client(), connection.cluster, now)
    if output == "json":
        answer(output, listing(overdue, slow, follows, paused, late))
        return int(bool(overdue or late))
    return show(console(), overdue, slow, follows, now, paused, late)


def listing(
    overdue: Sequence[NodeLife],
    slow: Sequence[NodeLife],
    follows: Mapping[str, str],
    paused: Sequence[Paused] = (),
    late: Sequence[Late] = (),
) -> dict[str, Any]:
    """For scripts. `action`: what follows by itself, null where no worker says it."""
    return {
        "overdue": [{**as_json(life), "action": follows.get(life.workflow_id)} for life in overdue],
        "slow": [as_json(life) for life in slow],
        "late": [
            {
                "what": one.what,
                "step": one.step,
                "since": one.since.isoformat() if one.since else None,
                "blockedBy": one.blocked_by,
            }
            for one in late
        ],
        "paused": [
            {"what": one.what, "pause": one.pause.model_dump(mode="json") if one.pause else None} for one in paused
        ],
    }


async def find(connection: Connection) -> tuple[list[NodeLife], list[NodeLife], dict[str, str], list[Paused]]:
    """Overdue ones, slow ones, what follows for the first by workflow id as far as a worker answers; what is paused."""
    client = await connection.client()
    lives = Lives(client, connection.cluster)
    overdue, slow = await lives.all(OVERDUE), await lives.all(SLOW_ONES)
    answers = await asyncio.gather(*(_action(client, life) for life in overdue[:ASKED]))
    follows = {life.workflow_id: said for life, said in zip(overdue, answers, strict=False) if said}
    return overdue, slow, follows, await all_paused(client, connection.cluster)


async def _action(client: Client, life: NodeLife) -> str:
    try:
        state = await client.get_workflow_handle(life.workflow_id).query(
            "state", result_type=ClaimState, rpc_timeout=_PATIENCE
        )
    except RPCError:
        return ""
    return action_of(state.seen.rules, state.phase)


def show(
    out: Console,
    overdue: Sequence[NodeLife],
    slow: Sequence[NodeLife],
    follows: Mapping[str, str],
    now: datetime,
    paused: Sequence[Paused] = (),
    late: Sequence[Late] = (),
) -> int:
    """The exit code."""
    if overdue:
        out.print(_table("Overdue", overdue, now, follows))
    else:
        out.print("No node is overdue.")
    if late:
        out.print(table_of(late, now))
    if slow:
        out.print(_table("Slow, and within their deadlines", slow, now))
    if paused:
        out.print(paused_table(paused))
    return 1 if overdue or late else 0


def _table(title: str, lives: Sequence[NodeLife], now: datetime, follows: Mapping[str, str] | None = None) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    names = ["NodeClaim", "NodePool", "type", "phase", "since", "deadline"]
    for name in (*names, "action") if follows is not None else names:
        table.add_column(name, no_wrap=True)
    table.add_column("blocked by", overflow="fold")
    for life in lives:
        cells = [life.name, life.pool or "-", life.instance_type or "-", life.phase, since(life, now), until(life, now)]
        if follows is not None:
            cells.append(follows.get(life.workflow_id, "-"))
        table.add_row(*cells, life.blocked_by or "-")
    return table
