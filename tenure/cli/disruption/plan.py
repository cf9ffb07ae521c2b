"""`tenure plan`: what voluntary disruption would do now and what that would save. Nothing is done."""

import asyncio
from typing import Any, Final

import typer
from rich.console import Group
from rich.table import Table

from tenure.cli.console import draw
from tenure.cli.exit_codes import Failed
from tenure.cli.nodes.why import as_json, ask
from tenure.cli.output import Output
from tenure.cli.temporal_client import Connection, connected
from tenure.model.base import few
from tenure.model.operator_requests import Shown, ShownCommand

app = typer.Typer(add_completion=False)
_NAMED: Final = 3
HOURS_A_MONTH: Final = 730


@app.command()
@connected
def plan(
    connection: Connection,
    output: Output = "table",
) -> None:
    """Say which nodes would go now, what would replace them, and what would be saved; and what keeps the others."""
    found = asyncio.run(look(connection))
    draw(output, as_json(found), as_table(found))
    if found.blocked:
        raise Failed(f"plan: {found.blocked}")


async def look(connection: Connection) -> Shown:
    return await ask(await connection.client(), connection.cluster)


def as_table(found: Shown) -> Group | str:
    """What would be done, command by command, and one line that sums it up."""
    if found.blocked:
        return f"nothing can be said now: {found.blocked}"
    parts: list[Any] = [_commands(found.commands)] if found.commands else []
    if found.more:
        parts.append(f"and {found.more} more")
    kept = ", ".join(f"{cause} {number}" for cause, number in found.kept.items())
    parts.append(f"{found.nodes} nodes, {found.eligible} could go" + (f"; kept by {kept}" if kept else ""))
    parts.append(_sum(found))
    return Group(*parts)


def _commands(commands: tuple[ShownCommand, ...]) -> Table:
    table = Table("reason", "nodes", "replaced by", "pods move")
    for name in ("$/h now", "$/h then", "saves $/h"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in commands:
        table.add_row(
            one.reason,
            few(one.nodes, _NAMED),
            "; ".join(one.replacements) or "nothing",
            str(one.pods),
            f"{one.price_before:.4f}",
            f"{one.price_after:.4f}",
            f"{one.price_before - one.price_after:.4f}",
        )
    return table


def _sum(found: Shown) -> str:
    if not found.commands:
        return "Nothing would be done now; `tenure why NODE` says what keeps one of them."
    saved = sum(one.price_before - one.price_after for one in found.commands)
    nodes = sum(len(one.nodes) for one in found.commands)
    bought = sum(len(one.replacements) for one in found.commands)
    return f"{nodes} nodes would go and {bought} come: {saved:.4g} $/h saved, {saved * HOURS_A_MONTH:,.0f} $ a month."
