"""Progress of long operations on stderr: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

SECONDS_BETWEEN_LINES = 10.0


class Progress(Protocol):
    """One step at a time; `step` ends the previous one."""

    def print_line(self, line: str) -> None: ...

    def step(self, title: str, total: float | None = None) -> None: ...

    def advance(self, done: float, detail: str = "") -> None:
        """`done`: absolute progress of this step."""


class BarProgress:
    """Progress bars on a terminal."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def print_line(self, line: str) -> None:
        self._bars.console.print(line)

    def step(self, title: str, total: float | None = None) -> None:
        if self._task is not None:
            finished = self._bars.tasks[self._task].total or 1
            self._bars.update(self._task, completed=finished, total=finished, detail="")
        self._task = self._bars.add_task(title, total=total, detail="")

    def advance(self, done: float, detail: str = "") -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done, detail=detail[-48:])


class LineProgress:
    """For logs: a line at the start of a step, and one every few seconds."""

    def __init__(self) -> None:
        self._title, self._total, self._reported_at = "", 0.0, 0.0

    def print_line(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def step(self, title: str, total: float | None = None) -> None:
        self._title, self._total, self._reported_at = title, total or 0.0, time.monotonic()
        self.print_line(title)

    def advance(self, done: float, detail: str = "") -> None:
        if time.monotonic() - self._reported_at < SECONDS_BETWEEN_LINES:
            return
        self._reported_at = time.monotonic()
        share = f" {min(100, 100 * done / self._total):.0f} %" if self._total else ""
        self.print_line(f"{self._title}:{share} {detail}".rstrip())


@contextmanager
def report_progress() -> Iterator[Progress]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineProgress()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}"),
    )
    with Bars(*columns, console=console) as bars:
        yield BarProgress(bars)
