"""What processes cost, read from /proc: CPU seconds and resident memory of a process and all that it started."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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


def trees(roots: Iterable[int], stats: dict[int, Stat]) -> Usage:
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


def measure(groups: dict[str, list[int]]) -> dict[str, Usage]:
    """One look at each group of process ids."""
    stats = all_stats()
    return {name: trees(pids, stats) for name, pids in groups.items()}


def children_of(pid: int) -> list[int]:
    return [stat.pid for stat in all_stats().values() if stat.parent == pid]
