"""Stretches of time as columns show them."""

from datetime import datetime, timedelta

from tenure.cli.nodes.workflows import NodeLife


def since(life: NodeLife, now: datetime) -> str:
    return f"{span(now - life.since)} ago" if life.since else "-"


def until(life: NodeLife, now: datetime) -> str:
    if life.deadline is None:
        return "-"
    return f"in {span(life.deadline - now)}" if life.deadline > now else f"{span(now - life.deadline)} late"


def span(length: timedelta) -> str:
    """`7s`, `4m05s`, `2h03m`: what fits into a column."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
