"""`tenure plan`: current voluntary disruption and its savings. Changes nothing."""

from typing import Final

from rich.table import Column

from tenure.cli.console import PrintableTable, make_table
from tenure.cli.exit_codes import CommandFailed
from tenure.cli.nodes.why import as_json, query_disruption_status
from tenure.cli.output import Result
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.model.base import format_number, format_short_list
from tenure.model.operator_requests import CommandPreview, DisruptionStatus

_NAMED: Final = 3
HOURS_A_MONTH: Final = 730


@temporal_command
async def plan(connection: Connection) -> Result:
    """List the nodes that would be disrupted now, their replacements and savings, and the blockers of other nodes."""
    found = await fetch_disruption_status(connection)
    error = CommandFailed(f"plan: {found.blocked}") if found.blocked else None
    return Result(as_json(found), format_status(found), error=error)


async def fetch_disruption_status(connection: Connection) -> DisruptionStatus:
    return await query_disruption_status(await connection.connect_to_cluster(), connection.cluster)


def format_status(found: DisruptionStatus) -> list[object]:
    """The commands, and a summary."""
    if found.blocked:
        return [f"no plan available: {found.blocked}"]
    parts: list[object] = [_commands_table(found.commands)] if found.commands else []
    parts += [f"and {found.more} more"] if found.more else []
    excluded = ", ".join(f"{cause} {number}" for cause, number in found.ineligible.items())
    kept = f"; blocked: {excluded}" if excluded else ""
    return [*parts, f"{found.nodes} nodes, {found.eligible} eligible{kept}", _format_summary(found)]


def _commands_table(commands: tuple[CommandPreview, ...]) -> PrintableTable:
    prices = (Column(name, justify="right", no_wrap=True) for name in ("$/h now", "$/h after", "saves $/h"))
    return make_table(
        "reason",
        "nodes",
        "replaced by",
        "moved pods",
        *prices,
        rows=(
            (
                one.reason,
                format_short_list(one.nodes, _NAMED),
                "; ".join(one.replacements) or "nothing",
                str(one.pods),
                f"{one.price_before:.4f}",
                f"{one.price_after:.4f}",
                f"{one.price_before - one.price_after:.4f}",
            )
            for one in commands
        ),
    )


def _format_summary(found: DisruptionStatus) -> str:
    if not found.commands:
        return "No node would be disrupted now; `tenure why NODE` shows what blocks a node."
    saved = sum(one.price_before - one.price_after for one in found.commands)
    nodes = sum(len(one.nodes) for one in found.commands)
    bought = sum(len(one.replacements) for one in found.commands)
    monthly = f"{saved * HOURS_A_MONTH:,.0f} $/month"
    return f"{nodes} nodes deleted, {bought} launched: saves {format_number(saved)} $/h, {monthly}."
