"""Stretches of time as columns show them."""

from datetime import datetime, timedelta

from tenure.cli.nodes.workflows import NodeClaimSummary


def format_since(nodeclaim: NodeClaimSummary, now: datetime) -> str:
    return f"{format_span(now - nodeclaim.since)} ago" if nodeclaim.since else "-"


def format_until(nodeclaim: NodeClaimSummary, now: datetime) -> str:
    if nodeclaim.deadline is None:
        return "-"
    return (
        f"in {format_span(nodeclaim.deadline - now)}"
        if nodeclaim.deadline > now
        else f"{format_span(now - nodeclaim.deadline)} late"
    )


def format_span(length: timedelta) -> str:
    """`7s`, `4m05s`, `2h03m`: what fits into a column."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
