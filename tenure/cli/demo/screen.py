"""Where the demo shows itself: a live table on a terminal, a line per change elsewhere."""

import time
from datetime import UTC, datetime
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from tenure.cli.nodes.tables import nodeclaims_table
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.cli.sandbox.environment import ClusterView
from tenure.cli.sandbox.probes import PodCount

WIDTH_OF_A_LOG = 160


class Screen(Protocol):
    console: Console

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def print_heading(self, title: str) -> None:
        """A new part of the demo begins."""
        ...

    def print_line(self, line: str) -> None: ...

    def update(self, view: ClusterView) -> None: ...

    def clear(self) -> None:
        """Nothing is looked at any more."""
        ...


def screen_for(console: Console) -> Screen:
    return LiveScreen(console) if console.is_terminal else LineScreen(console)


def console_for_output() -> Console:
    """Logs have no width of their own; tables should not be folded there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDTH_OF_A_LOG, highlight=False)


class LiveScreen:
    """The table stays below what is said."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True, vertical_overflow="ellipsis")
        self._view: ClusterView | None = None
        self._live.get_renderable = self.render  # type: ignore[method-assign]  # its times tick between two views

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def print_heading(self, title: str) -> None:
        self.console.print(Rule(Text(title, style="bold"), align="left"))

    def print_line(self, line: str) -> None:
        self.console.print(line, markup=False)

    def update(self, view: ClusterView) -> None:
        self._view = view

    def clear(self) -> None:
        self._live.stop()

    def render(self) -> Group:
        if self._view is None or not self._view.nodeclaims:
            return Group()
        view = self._view
        running = [nodeclaim for nodeclaim in view.nodeclaims if nodeclaim.open] or list(view.nodeclaims)
        title = f"pods: {view.pods}   nodes: {sum(nodeclaim.open for nodeclaim in view.nodeclaims)}"
        return Group(nodeclaims_table(running, now=datetime.now(UTC), pods=view.pods.by_node, title=title))


class LineScreen:
    """Every change of a node's phase is a line, and so is the pods' count when it moved."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._phases: dict[str, tuple[str, bool, str]] = {}
        self._pods, self._pods_printed_at = "", 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def print_heading(self, title: str) -> None:
        self.print_line(f"== {title}")

    def print_line(self, line: str) -> None:
        self.console.print(f"{time.monotonic() - self._began:7.1f} s  {line}", markup=False, soft_wrap=True)

    def update(self, view: ClusterView) -> None:
        for nodeclaim in view.nodeclaims:
            now = (nodeclaim.phase, nodeclaim.overdue, nodeclaim.blocked_by)
            if self._phases.get(nodeclaim.workflow_id) != now:
                self._phases[nodeclaim.workflow_id] = now
                self.print_line(format_nodeclaim(nodeclaim))
        self._print_pods(view.pods)

    def _print_pods(self, pods: PodCount) -> None:
        """While they move, a line a second; the end of it at once."""
        moving = 0 < pods.running < pods.total or pods.terminating
        if str(pods) == self._pods or (moving and time.monotonic() < self._pods_printed_at + 1):
            return
        self._pods, self._pods_printed_at = str(pods), time.monotonic()
        self.print_line(f"pods: {pods}")

    def clear(self) -> None:
        return None


def format_nodeclaim(nodeclaim: NodeClaimSummary) -> str:
    """One node's state in a line of a log."""
    machine = " ".join(
        part
        for part in (nodeclaim.instance_id, nodeclaim.instance_type, nodeclaim.capacity_type, nodeclaim.zone)
        if part
    )
    columns = [f"{nodeclaim.name:<24}", f"{nodeclaim.phase:<14}", machine]
    columns += ["OVERDUE"] if nodeclaim.overdue else []
    columns += [f"until {nodeclaim.deadline:%H:%M:%S} UTC"] if nodeclaim.deadline else []
    columns += [f"blocked by {nodeclaim.blocked_by}"] if nodeclaim.blocked_by else []
    return "  ".join(column for column in columns if column).rstrip()
