"""What every benchmark on the sandbox begins and ends with.

What processes cost, read from /proc: CPU seconds and resident memory of a process and all that it started.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer

from tenure.cli.exit_codes import CommandFailed, UsageError, exit_code_of, format_error
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import SandboxError
from tenure.sandbox.spec import Plan

T = TypeVar("T")


def benchmark_app() -> typer.Typer:
    """An app of one command."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def in_sandbox(plan: Plan, play: Callable[[Sandbox], Coroutine[Any, Any, T]]) -> T:
    """What `play` answers, in a sandbox of its own. The logs of one that failed are kept, and named."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
    try:
        with Sandbox(directory, plan=plan) as sandbox:
            found = asyncio.run(play(sandbox))
    except (CommandFailed, SandboxError):
        print(f"The logs are in {directory / 'logs'}", file=sys.stderr)
        raise
    shutil.rmtree(directory, ignore_errors=True)
    return found


def run(app: typer.Typer, name: str) -> int:
    """Exit codes as everywhere in `tenure/cli/exit_codes.py`; the command's own where it answers."""
    try:
        result = app(standalone_mode=False)
    except (CommandFailed, SandboxError, UsageError, typer.TyperException, KeyboardInterrupt) as error:
        if not isinstance(error, KeyboardInterrupt):
            print(format_error(error, name), file=sys.stderr)
        return exit_code_of(error)
    return int(result or 0)


TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


@dataclass(frozen=True)
class Usage:
    """CPU in seconds since the process began, memory in bytes now."""

    cpu: float = 0.0
    rss: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.cpu + other.cpu, self.rss + other.rss)


@dataclass(frozen=True)
class Stat:
    pid: int
    parent: int
    cpu: float
    """Its own and that of children which it waited for."""
    rss: int


def read_stat(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11:15])
    return Stat(pid, int(fields[1]), ticks / TICKS, int(fields[21]) * PAGE)


def all_stats() -> dict[int, Stat]:
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return {pid: stat for pid in pids if (stat := read_stat(pid))}


def tree_usage(roots: Iterable[int], stats: dict[int, Stat]) -> Usage:
    """Of these processes and everything below them."""
    children: dict[int, list[int]] = {}
    for stat in stats.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    total, waiting = Usage(), [pid for pid in roots if pid in stats]
    while waiting:
        pid = waiting.pop()
        total += Usage(stats[pid].cpu, stats[pid].rss)
        waiting += children.get(pid, [])
    return total


def measure_usage(groups: dict[str, list[int]]) -> dict[str, Usage]:
    """One look at each group of process ids."""
    stats = all_stats()
    return {name: tree_usage(pids, stats) for name, pids in groups.items()}


def children_of(pid: int) -> list[int]:
    return [stat.pid for stat in all_stats().values() if stat.parent == pid]
