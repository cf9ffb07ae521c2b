"""`tenure plan`: what voluntary disruption would do now and what that would save. Nothing is done."""

import asyncio

import typer

from cli.connection import Connection, connected
from cli.exits import Failed
from cli.output import Output, answer
from cli.shown import as_json, as_table, ask
from model.showing import Shown

app = typer.Typer(add_completion=False)


@app.command()
@connected
def plan(
    connection: Connection,
    output: Output = "table",
) -> None:
    """Say which nodes would go now, what would replace them, and what would be saved; and what keeps the others."""
    found = asyncio.run(look(connection))
    answer(output, as_json(found), as_table(found))
    if found.blocked:
        raise Failed(f"plan: {found.blocked}")


async def look(connection: Connection) -> Shown:
    return await ask(await connection.client(), connection.cluster)
