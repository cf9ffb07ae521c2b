"""Tables of nodes' lives, for the demo's live view and `tenure stuck`."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from tenure.cli.nodes.durations import format_since, format_until
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.nodeclaim.history import Phase

STYLES = {
    Phase.LAUNCH.value: "yellow",
    Phase.REGISTRATION.value: "dark_orange",
    Phase.INITIALIZATION.value: "cyan",
    Phase.READY.value: "bold green",
    Phase.DRAIN.value: "magenta",
    Phase.TERMINATION.value: "red",
    Phase.DELETED.value: "dim",
}


def nodeclaims_table(
    nodeclaims: Sequence[NodeClaimSummary], *, now: datetime, pods: Mapping[str, int] | None = None, title: str = ""
) -> Table:
    """`pods` counts the Running ones by node name."""
    table = Table(title=title or None, title_justify="left", expand=False)
    for name in ("NodeClaim", "phase", "since", "deadline", "instance", "type", "zone"):
        table.add_column(name, no_wrap=True)
    if pods is not None:
        table.add_column("pods", justify="right")
    if any(nodeclaim.blocked_by for nodeclaim in nodeclaims):
        table.add_column("blocked by", overflow="ellipsis", max_width=40)
    for nodeclaim in nodeclaims:
        table.add_row(
            *_table_cells(nodeclaim, now, pods, len(table.columns)), style="dim" if not nodeclaim.open else None
        )
    return table


def _table_cells(
    nodeclaim: NodeClaimSummary, now: datetime, pods: Mapping[str, int] | None, columns: int
) -> list[str | Text]:
    cells: list[str | Text] = [
        nodeclaim.name,
        Text(nodeclaim.phase + (" overdue" if nodeclaim.overdue else ""), style=STYLES.get(nodeclaim.phase, "")),
        format_since(nodeclaim, now),
        format_until(nodeclaim, now),
        nodeclaim.instance_id or "-",
        " ".join(part for part in (nodeclaim.instance_type, nodeclaim.capacity_type) if part) or "-",
        nodeclaim.zone or "-",
    ]
    if pods is not None:
        cells.append(str(pods.get(nodeclaim.node_name, 0)) if nodeclaim.node_name and nodeclaim.open else "-")
    return cells if len(cells) == columns else [*cells, nodeclaim.blocked_by]
