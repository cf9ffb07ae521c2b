"""Tables of nodes' lives, for the demo's live view and `tenure stuck`."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from tenure.cli.nodes.durations import since, until
from tenure.cli.nodes.workflows import NodeLife
from tenure.model.nodeclaim_history import Phase

STYLES = {
    Phase.LAUNCH.value: "yellow",
    Phase.REGISTRATION.value: "dark_orange",
    Phase.INITIALIZATION.value: "cyan",
    Phase.READY.value: "bold green",
    Phase.DRAIN.value: "magenta",
    Phase.TERMINATION.value: "red",
    Phase.GONE.value: "dim",
}


def lives_table(
    lives: Sequence[NodeLife], *, now: datetime, pods: Mapping[str, int] | None = None, title: str = ""
) -> Table:
    """`pods` counts the Running ones by node name."""
    table = Table(title=title or None, title_justify="left", expand=False)
    for name in ("NodeClaim", "phase", "since", "deadline", "instance", "type", "zone"):
        table.add_column(name, no_wrap=True)
    if pods is not None:
        table.add_column("pods", justify="right")
    if any(life.blocked_by for life in lives):
        table.add_column("blocked by", overflow="ellipsis", max_width=40)
    for life in lives:
        table.add_row(*_cells(life, now, pods, len(table.columns)), style="dim" if not life.open else None)
    return table


def _cells(life: NodeLife, now: datetime, pods: Mapping[str, int] | None, columns: int) -> list[str | Text]:
    cells: list[str | Text] = [
        life.name,
        Text(life.phase + (" overdue" if life.overdue else ""), style=STYLES.get(life.phase, "")),
        since(life, now),
        until(life, now),
        life.instance_id or "-",
        " ".join(part for part in (life.instance_type, life.capacity_type) if part) or "-",
        life.zone or "-",
    ]
    if pods is not None:
        cells.append(str(pods.get(life.node_name, 0)) if life.node_name and life.open else "-")
    return cells if len(cells) == columns else [*cells, life.blocked_by]
