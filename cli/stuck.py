"""`tenure stuck`: the nodes that are past the deadline of their phase, and what each waits for; slow ones apart, and
what people have paused.

A slow node takes longer than such nodes have taken so far, and is within its deadline: it is shown, and is no alarm.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import typer
from rich.console import Console
from rich.table import Table
from temporalio.client import Client
from temporalio.service import RPCError

from cli.connection import Address, ClusterName, Connection, Namespace
from cli.lives import Lives, NodeLife
from cli.paused import Paused, all_paused, table_of
from cli.tables import since, until
from model.lifecycle import ClaimState
from policy.overdue import SLOW
from policy.rules import action_of

app = typer.Typer()
RUNNING = "ExecutionStatus = 'Running'"
OVERDUE = f"TenureOverdue = true AND {RUNNING}"
SLOW_ONES = f"TenureBlockedBy STARTS_WITH '{SLOW}: ' AND {RUNNING}"
ASKED = 50
"""Overdue nodes whose workflows are asked what follows."""
_PATIENCE = timedelta(seconds=2)


@app.command()
def stuck(address: Address = "127.0.0.1:7233", namespace: Namespace = "default", cluster_name: ClusterName = "") -> int:
    """List nodes that are overdue, and those that are slow. Exit code 1 when one is overdue."""
    connection = Connection(address, namespace, cluster_name)
    overdue, slow, follows, paused = asyncio.run(find(connection))
    return show(Console(), overdue, slow, follows, datetime.now(UTC), paused)


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
    console: Console,
    overdue: Sequence[NodeLife],
    slow: Sequence[NodeLife],
    follows: Mapping[str, str],
    now: datetime,
    paused: Sequence[Paused] = (),
) -> int:
    """The exit code."""
    if overdue:
        console.print(_table("Overdue", overdue, now, follows))
    else:
        console.print("No node is overdue.")
    if slow:
        console.print(_table("Slow, and within their deadlines", slow, now))
    if paused:
        console.print(table_of(paused))
    return 1 if overdue else 0


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
