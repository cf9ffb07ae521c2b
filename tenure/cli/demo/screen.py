"""Where the demo shows itself: a live table on a terminal, a line per change elsewhere."""

import time
from datetime import UTC, datetime
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from tenure.cli.nodes.tables import lives_table
from tenure.cli.nodes.workflows import NodeLife
from tenure.cli.sandbox.environment import View
from tenure.cli.sandbox.probes import PodCount

WIDTH_OF_A_LOG = 160


class Screen(Protocol):
    console: Console

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def act(self, title: str) -> None:
        """A new part of the demo begins."""
        ...

    def say(self, line: str) -> None: ...

    def show(self, view: View) -> None: ...

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
        self._view: View | None = None
        self._live.get_renderable = self.renderable  # type: ignore[method-assign]  # its times tick between two views

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def act(self, title: str) -> None:
        self.console.print(Rule(Text(title, style="bold"), align="left"))

    def say(self, line: str) -> None:
        self.console.print(line, markup=False)

    def show(self, view: View) -> None:
        self._view = view

    def clear(self) -> None:
        self._live.stop()

    def renderable(self) -> Group:
        if self._view is None or not self._view.lives:
            return Group()
        view = self._view
        running = [life for life in view.lives if life.open] or list(view.lives)
        title = f"pods: {view.pods}   nodes: {sum(life.open for life in view.lives)}"
        return Group(lives_table(running, now=datetime.now(UTC), pods=view.pods.by_node, title=title))


class LineScreen:
    """Every change of a node's phase is a line, and so is the pods' count when it moved."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._phases: dict[str, tuple[str, bool, str]] = {}
        self._pods, self._pods_told = "", 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def act(self, title: str) -> None:
        self.say(f"== {title}")

    def say(self, line: str) -> None:
        self.console.print(f"{time.monotonic() - self._began:7.1f} s  {line}", markup=False, soft_wrap=True)

    def show(self, view: View) -> None:
        for life in view.lives:
            now = (life.phase, life.overdue, life.blocked_by)
            if self._phases.get(life.workflow_id) != now:
                self._phases[life.workflow_id] = now
                self.say(line_of(life))
        self._show_pods(view.pods)

    def _show_pods(self, pods: PodCount) -> None:
        """While they move, a line a second; the end of it at once."""
        moving = 0 < pods.running < pods.total or pods.leaving
        if str(pods) == self._pods or (moving and time.monotonic() < self._pods_told + 1):
            return
        self._pods, self._pods_told = str(pods), time.monotonic()
        self.say(f"pods: {pods}")

    def clear(self) -> None:
        return None


def line_of(life: NodeLife) -> str:
    """One node's state in a line of a log."""
    place = " ".join(part for part in (life.instance_id, life.instance_type, life.capacity_type, life.zone) if part)
    words = [f"{life.name:<24}", f"{life.phase:<14}", place]
    words += ["OVERDUE"] if life.overdue else []
    words += [f"until {life.deadline:%H:%M:%S} UTC"] if life.deadline else []
    words += [f"blocked by {life.blocked_by}"] if life.blocked_by else []
    return "  ".join(word for word in words if word).rstrip()
