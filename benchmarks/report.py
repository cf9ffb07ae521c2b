"""Tables of a benchmark: one row per step with Karpenter's results, then calls, resource usage and history events."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Usage

KARPENTER = {
    100: ("10.5", "15", "22-24"),
    500: ("18-19", "72", "32-38"),
    1000: ("37-43", "143", "56-62"),
}
"""Seconds, nodes and AWS calls by number of pods, for Karpenter 1.14 in the same environment, each size from zero."""
WORKER, TEMPORAL = ("worker", "planner"), ("temporal",)


@dataclass(frozen=True)
class Step:
    begin: int
    """Number of pods before the step."""
    end: int
    seconds: float
    nodes: int
    """Nodes at the end when scaling up; deleted nodes when scaling down."""
    calls: Mapping[str, int]
    cost: Mapping[str, Usage]
    """CPU seconds of the step and memory at its end, by process."""
    events: Sequence[int] = ()
    """History length of each NodeClaim that completed in the step."""

    @property
    def title(self) -> str:
        return f"{self.begin} -> {self.end}"

    def as_json(self) -> dict[str, Any]:
        cost = {name: {"cpu_seconds": round(usage.cpu, 2), "rss_bytes": usage.rss} for name, usage in self.cost.items()}
        plain = {"begin": self.begin, "end": self.end, "seconds": round(self.seconds, 2), "nodes": self.nodes}
        return {**plain, "aws_calls": dict(self.calls), "cost": cost, "history_events": list(self.events)}

    def usage_of(self, names: Sequence[str]) -> Usage:
        return sum((self.cost[name] for name in names if name in self.cost), Usage())

    def usage_of_others(self) -> Usage:
        return self.usage_of([name for name in self.cost if name not in (*WORKER, *TEMPORAL)])


def as_json(steps: Sequence[Step], *, remarks: str = "") -> dict[str, Any]:
    return {"machine": describe_machine(), "steps": [step.as_json() for step in steps], "note": remarks}


def report(steps: Sequence[Step], *, fresh: bool, remarks: str = "", console: Console | None = None) -> None:
    out = console or Console(width=None if Console().is_terminal else 160, highlight=False)
    out.print(f"Measured on {describe_machine()}")
    out.print(steps_table(steps, fresh=fresh))
    out.print(calls_table(steps))
    out.print(cost_table(steps))
    events = [count for step in steps for count in step.events]
    if events:
        spread = f"min {min(events)}, median {statistics.median(events):g}, max {max(events)}"
        out.print(f"History events per node, {len(events)} NodeClaims: {spread}")
    if remarks:
        out.print(remarks)


def steps_table(steps: Sequence[Step], *, fresh: bool) -> Table:
    remark = "" if fresh else "; Karpenter scales each from zero, as with --fresh"
    table = Table(title=f"Seconds until all pods are Running, or until no node is left{remark}", title_justify="left")
    for name in ("pods", "seconds", "nodes", "AWS calls", "Karpenter: seconds", "nodes", "AWS calls"):
        table.add_column(name, justify="right")
    for step in steps:
        theirs = KARPENTER.get(step.end, ("-", "-", "-"))
        table.add_row(step.title, f"{step.seconds:.1f}", str(step.nodes), str(sum(step.calls.values())), *theirs)
    return table


def calls_table(steps: Sequence[Step]) -> Table:
    table = Table(title="AWS calls by action", title_justify="left")
    table.add_column("action", no_wrap=True)
    for step in steps:
        table.add_column(step.title, justify="right")
    for action in sorted({action for step in steps for action in step.calls}):
        table.add_row(action, *(str(step.calls.get(action, 0) or "-") for step in steps))
    return table


def cost_table(steps: Sequence[Step]) -> Table:
    table = Table(title="CPU seconds of the step, and MB of memory at its end", title_justify="left")
    table.add_column("process", no_wrap=True)
    for step in steps:
        table.add_column(step.title, justify="right")
    rows = {"worker": ("worker",), "planner": ("planner",), "Temporal": TEMPORAL}
    for title, names in rows.items():
        table.add_row(title, *(_format_usage(step.usage_of(names)) for step in steps))
    table.add_row("others", *(_format_usage(step.usage_of_others()) for step in steps), end_section=True)
    for name in sorted({name for step in steps for name in step.cost} - {*WORKER, *TEMPORAL}):
        table.add_row(f"  {name}", *(_format_usage(step.usage_of([name])) for step in steps))
    return table


def _format_usage(usage: Usage) -> str:
    return f"{usage.cpu:.1f} s {usage.rss / 1e6:5.0f} MB"


def describe_machine() -> str:
    """One line with processor, cores and memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.machine()
    return f"{len(os.sched_getaffinity(0))} x {name}, {memory:.0f} GiB, Python {platform.python_version()}"
