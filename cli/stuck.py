"""`tenure stuck`: the nodes that are past the deadline of their phase, and what each waits for."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import typer
from rich.console import Console
from temporalio.service import RPCError

from cli.connection import Address, ClusterName, Connection, Namespace
from cli.lives import Lives, NodeLife
from cli.tables import lives_table
from model.lifecycle import ClaimState, Phase
from workflows.details import draining

app = typer.Typer()
VERDICTS = 100
"""Workflows that are asked, one after the other."""
OVERDUE = "TenureOverdue = true AND ExecutionStatus = 'Running'"


@app.command()
def stuck(address: Address = "127.0.0.1:7233", namespace: Namespace = "default", cluster_name: ClusterName = "") -> int:
    """List nodes that are overdue. Exit code 1 when there is one."""
    return show(*asyncio.run(find(Connection(address, namespace, cluster_name))))


async def find(connection: Connection) -> tuple[list[NodeLife], dict[str, tuple[str, ...]]]:
    """The nodes, and what the drains among them wait for, by NodeClaim; nothing of one that no worker answers for."""
    client = await connection.client()
    overdue = await Lives(client, connection.cluster).all(OVERDUE)
    verdicts = {}
    for life in overdue[:VERDICTS]:
        if life.phase == Phase.DRAIN.value:
            with suppress(RPCError):
                handle = client.get_workflow_handle(life.workflow_id)
                verdicts[life.name] = draining(await handle.query("state", result_type=ClaimState))
    return overdue, verdicts


def show(overdue: list[NodeLife], verdicts: Mapping[str, tuple[str, ...]]) -> int:
    console = Console()
    if not overdue:
        console.print("No node is overdue.")
        return 0
    console.print(lives_table(overdue, now=datetime.now(UTC)))
    for name, lines in verdicts.items():
        for line in lines:
            console.print(f"{name}: {line}", soft_wrap=True, highlight=False, markup=False)
    return 1
