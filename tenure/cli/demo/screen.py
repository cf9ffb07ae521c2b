"""The demo's output: on a terminal a `rich.live` table below the lines, elsewhere one line per change."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from tenure.cli.nodes.workflows import NodeClaimSummary, format_since, format_until
from tenure.cli.output import column_widths, fit_columns
from tenure.cli.sandbox.environment import ClusterView
from tenure.model.nodeclaim.history import Phase

WIDTH_OF_A_LOG: Final = 160
_BLOCKED_BY: Final = "blocked by"
_OPTIONAL_COLUMNS: Final = ("zone", "instance", "since", "deadline", "type", _BLOCKED_BY)
"""Columns that a narrow terminal omits, first one first."""
_BORDER: Final = " │ "
"""Between columns. The outer borders take four characters."""
_STYLES: Final[dict[str, str]] = {
    Phase.LAUNCH.value: "yellow",
    Phase.REGISTRATION.value: "dark_orange",
    Phase.INITIALIZATION.value: "cyan",
    Phase.READY.value: "bold green",
    Phase.DRAIN.value: "magenta",
    Phase.TERMINATION.value: "red",
    Phase.DELETED.value: "dim",
}


def console_for_output() -> Console:
    """Wide if it is not a terminal, so that tables are not folded in logs."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDTH_OF_A_LOG, highlight=False)


class Screen:
    """A context manager: the table is live inside it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._view: ClusterView | None = None
        self._live = Live(console=console, transient=True, get_renderable=self.render)
        self._began = time.monotonic()
        self._printed: dict[str, tuple[str, bool, str]] = {}
        self._pods_line, self._pods_printed_at = "", 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def print_heading(self, title: str) -> None:
        if self.console.is_terminal:
            self.console.rule(Text(title, style="bold"), align="left")
        else:
            self.print_line(f"== {title}")

    def print_line(self, line: str) -> None:
        time_of_log = "" if self.console.is_terminal else f"{time.monotonic() - self._began:7.1f} s  "
        self.console.print(f"{time_of_log}{line}", markup=False, soft_wrap=not self.console.is_terminal)

    def update(self, view: ClusterView) -> None:
        self._view = view
        if not self.console.is_terminal:
            self._print_changes(view)

    def clear(self) -> None:
        """Remove the table."""
        self._live.stop()

    def render(self) -> RenderableType:
        """Called at each refresh, so that durations advance between two views."""
        if self._view is None or not self._view.nodeclaims:
            return ""
        view = self._view
        running = [one for one in view.nodeclaims if one.open]
        listed = running or view.nodeclaims
        table = nodeclaims_table(listed, view.pods.by_node, datetime.now(UTC), self.console.width)
        table.title = f"pods: {view.pods}   nodes: {len(running)}"
        return table

    def _print_changes(self, view: ClusterView) -> None:
        for nodeclaim in view.nodeclaims:
            state = (nodeclaim.phase, nodeclaim.overdue, nodeclaim.blocked_by)
            if self._printed.get(nodeclaim.workflow_id) != state:
                self._printed[nodeclaim.workflow_id] = state
                self.print_line(format_nodeclaim(nodeclaim))
        pods = view.pods
        moving = 0 < pods.running < pods.total or pods.terminating
        if str(pods) != self._pods_line and not (moving and time.monotonic() < self._pods_printed_at + 1):
            self._pods_line, self._pods_printed_at = str(pods), time.monotonic()
            self.print_line(f"pods: {pods}")


def nodeclaims_table(
    nodeclaims: Sequence[NodeClaimSummary], pods: Mapping[str, int], now: datetime, width: int
) -> Table:
    """The columns that fit `width` characters. `pods`: number of Running pods by node name."""
    head = ["NodeClaim", "phase", "since", "deadline", "instance", "type", "zone", "pods"]
    head += [_BLOCKED_BY] if any(one.blocked_by for one in nodeclaims) else []
    rows = [_table_row(one, pods, now)[: len(head)] for one in nodeclaims]
    widths = column_widths([head, *(list(map(str, row)) for row in rows)])
    names = fit_columns(dict(zip(head, widths, strict=True)), _OPTIONAL_COLUMNS, width - 4, len(_BORDER))
    table = Table(*(Column(name, no_wrap=True) for name in names), title_justify="left")
    for one, row in zip(nodeclaims, rows, strict=True):
        cells = dict(zip(head, row, strict=True))
        table.add_row(*(cells[name] for name in names), style=None if one.open else "dim")
    return table


def _table_row(one: NodeClaimSummary, pods: Mapping[str, int], now: datetime) -> list[str | Text]:
    return [
        one.name,
        Text(f"{one.phase} overdue" if one.overdue else one.phase, style=_STYLES.get(one.phase, "")),
        format_since(one, now),
        format_until(one, now),
        one.instance_id or "-",
        f"{one.instance_type} {one.capacity_type}".strip() or "-",
        one.zone or "-",
        str(pods.get(one.node_name, 0)) if one.node_name and one.open else "-",
        one.blocked_by,
    ]


def format_nodeclaim(nodeclaim: NodeClaimSummary) -> str:
    """One line of a log."""
    machine = (nodeclaim.instance_id, nodeclaim.instance_type, nodeclaim.capacity_type, nodeclaim.zone)
    columns = [f"{nodeclaim.name:<24}", f"{nodeclaim.phase:<14}", " ".join(filter(None, machine))]
    columns += ["OVERDUE"] if nodeclaim.overdue else []
    columns += [f"until {nodeclaim.deadline:%H:%M:%S} UTC"] if nodeclaim.deadline else []
    columns += [f"blocked by {nodeclaim.blocked_by}"] if nodeclaim.blocked_by else []
    return "  ".join(filter(None, columns)).rstrip()
