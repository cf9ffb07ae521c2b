"""Common parts of the benchmarks: a sandbox, and the resource usage of processes.

Usage is read from /proc: CPU seconds and resident memory of a process and its descendants.
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
    """A Typer app for one command."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def in_sandbox(plan: Plan, play: Callable[[Sandbox], Coroutine[Any, Any, T]]) -> T:
    """Run `play` in a new sandbox and return its result. After a failure, keep the logs and print their path."""
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
    """The result of the command as exit code, or after an error that of `tenure/cli/exit_codes.py`."""
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
    """CPU seconds since the process started, and current memory in bytes."""

    cpu: float = 0.0
    rss: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.cpu + other.cpu, self.rss + other.rss)


@dataclass(frozen=True)
class Stat:
    pid: int
    parent: int
    cpu: float
    """CPU seconds of the process and of children that it waited for."""
    rss: int


def read_stat(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may contain spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11:15])
    return Stat(pid, int(fields[1]), ticks / TICKS, int(fields[21]) * PAGE)


def all_stats() -> dict[int, Stat]:
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return {pid: stat for pid in pids if (stat := read_stat(pid))}


def tree_usage(roots: Iterable[int], stats: dict[int, Stat]) -> Usage:
    """Usage of these processes and their descendants."""
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
    """Current usage by group of process IDs."""
    stats = all_stats()
    return {name: tree_usage(pids, stats) for name, pids in groups.items()}


def children_of(pid: int) -> list[int]:
    return [stat.pid for stat in all_stats().values() if stat.parent == pid]
