"""`tenure plan`: what voluntary disruption would do now and what that would save. Nothing is done."""

import asyncio
from typing import Any, Final

import typer
from rich.console import Group
from rich.table import Table

from tenure.cli.console import print_renderables
from tenure.cli.exit_codes import CommandFailed
from tenure.cli.nodes.why import as_json, query_disruption_status
from tenure.cli.output import Output
from tenure.cli.temporal_client import Connection, with_connection
from tenure.model.base import format_short_list
from tenure.model.operator_requests import CommandPreview, DisruptionStatus

app = typer.Typer(add_completion=False)
_NAMED: Final = 3
HOURS_A_MONTH: Final = 730


@app.command()
@with_connection
def plan(
    connection: Connection,
    output: Output = "table",
) -> None:
    """Say which nodes would go now, what would replace them, and what would be saved; and what keeps the others."""
    found = asyncio.run(fetch_disruption_status(connection))
    print_renderables(output, as_json(found), as_table(found))
    if found.blocked:
        raise CommandFailed(f"plan: {found.blocked}")


async def fetch_disruption_status(connection: Connection) -> DisruptionStatus:
    return await query_disruption_status(await connection.connect(), connection.cluster)


def as_table(found: DisruptionStatus) -> Group | str:
    """What would be done, command by command, and one line that sums it up."""
    if found.blocked:
        return f"nothing can be said now: {found.blocked}"
    parts: list[Any] = [_commands_table(found.commands)] if found.commands else []
    if found.more:
        parts.append(f"and {found.more} more")
    excluded = ", ".join(f"{cause} {number}" for cause, number in found.ineligible.items())
    parts.append(f"{found.nodes} nodes, {found.eligible} could go" + (f"; kept by {excluded}" if excluded else ""))
    parts.append(_format_summary(found))
    return Group(*parts)


def _commands_table(commands: tuple[CommandPreview, ...]) -> Table:
    table = Table("reason", "nodes", "replaced by", "pods move")
    for name in ("$/h now", "$/h then", "saves $/h"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in commands:
        table.add_row(
            one.reason,
            format_short_list(one.nodes, _NAMED),
            "; ".join(one.replacements) or "nothing",
            str(one.pods),
            f"{one.price_before:.4f}",
            f"{one.price_after:.4f}",
            f"{one.price_before - one.price_after:.4f}",
        )
    return table


def _format_summary(found: DisruptionStatus) -> str:
    if not found.commands:
        return "Nothing would be done now; `tenure why NODE` says what keeps one of them."
    saved = sum(one.price_before - one.price_after for one in found.commands)
    nodes = sum(len(one.nodes) for one in found.commands)
    bought = sum(len(one.replacements) for one in found.commands)
    return f"{nodes} nodes would go and {bought} come: {saved:.4g} $/h saved, {saved * HOURS_A_MONTH:,.0f} $ a month."
