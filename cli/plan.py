"""`tenure plan`: what voluntary disruption would do now and what that would save. Nothing is done."""

import asyncio
import json
from typing import Annotated

import typer
from rich.console import Console

from cli.connection import Address, ClusterName, Connection, Namespace
from cli.exits import Failed, Refused
from cli.shown import as_json, as_table, ask
from model.showing import Shown

app = typer.Typer()

Output = Annotated[str, typer.Option("--output", "-o", help="table or json.")]


@app.command()
def plan(
    address: Address = "127.0.0.1:7233",
    namespace: Namespace = "default",
    cluster_name: ClusterName = "",
    output: Output = "table",
) -> None:
    """Say which nodes would go now, what would replace them, and what would be saved; and what keeps the others."""
    if output not in ("table", "json"):
        raise Refused(f"plan: --output {output}: write table or json")
    found = asyncio.run(look(Connection(address, namespace, cluster_name)))
    if output == "json":
        typer.echo(json.dumps(as_json(found), indent=2))
    else:
        Console(markup=False, highlight=False, emoji=False).print(as_table(found))
    if found.blocked:
        raise Failed(f"plan: {found.blocked}")


async def look(connection: Connection) -> Shown:
    return await ask(await connection.client(), connection.cluster)
