"""`tenure stuck`: the nodes that are past the deadline of their phase, and what each waits for."""

import asyncio
from datetime import UTC, datetime

import typer
from rich.console import Console

from cli.connection import Address, ClusterName, Connection, Namespace
from cli.lives import Lives, NodeLife
from cli.tables import lives_table

app = typer.Typer()
OVERDUE = "TenureOverdue = true AND ExecutionStatus = 'Running'"


@app.command()
def stuck(address: Address = "127.0.0.1:7233", namespace: Namespace = "default", cluster_name: ClusterName = "") -> int:
    """List nodes that are overdue. Exit code 1 when there is one."""
    return show(asyncio.run(find(Connection(address, namespace, cluster_name))))


async def find(connection: Connection) -> list[NodeLife]:
    return await Lives(await connection.client(), connection.cluster).all(OVERDUE)


def show(overdue: list[NodeLife]) -> int:
    console = Console()
    if not overdue:
        console.print("No node is overdue.")
        return 0
    console.print(lives_table(overdue, now=datetime.now(UTC)))
    return 1
