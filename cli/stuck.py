"""`tenure stuck`: the nodes that are past the deadline of their phase, or wait for a hook that failed, and what each
waits for; roll-outs and commands that wait for a person; slow nodes apart, and what people have paused.

A slow node takes longer than such nodes have taken so far, and is within its deadline: it is shown, and is no alarm.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from temporalio.client import Client
from temporalio.service import RPCError

from cli.connection import Connection, connected
from cli.drawn import console
from cli.late import Late, all_late
from cli.late import table_of as late_ones
from cli.lives import Lives, NodeLife, as_json
from cli.output import Output, answer
from cli.paused import Paused, all_paused, table_of
from cli.spans import since, until
from model.lifecycle import ClaimState
from policy.overdue import MEND_HOOK, SLOW, WAITS_FOR_A_PERSON
from policy.rules import action_of

app = typer.Typer(add_completion=False)
RUNNING = "ExecutionStatus = 'Running'"
OVERDUE = f"(TenureOverdue = true OR TenureBlockedBy STARTS_WITH '{WAITS_FOR_A_PERSON}: {MEND_HOOK}') AND {RUNNING}"
"""Also what a hook that failed holds up, before the deadline."""
SLOW_ONES = f"TenureBlockedBy STARTS_WITH '{SLOW}: ' AND {RUNNING}"
ASKED = 50
"""Overdue nodes whose workflows are asked what follows."""
_PATIENCE = timedelta(seconds=2)


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
        out.print(late_ones(late, now))
    if slow:
        out.print(_table("Slow, and within their deadlines", slow, now))
    if paused:
        out.print(table_of(paused))
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
