"""The summary tables of the demo: the phases of each node on one time axis, and the calls to AWS."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from rich.table import Column, Table

from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.nodeclaim.state import NodeClaimOutcome, Phase, Step

PHASES: Final = {
    Phase.LAUNCH: ("L", "launch"),
    Phase.REGISTRATION: ("R", "regis."),
    Phase.INITIALIZATION: ("I", "init."),
    Phase.READY: ("=", "ready"),
    Phase.DRAIN: ("D", "drain"),
    Phase.TERMINATION: ("T", "term."),
}
"""Letter in the bar and column heading."""
LEGEND: Final = "  ".join(f"{letter} {phase.value.lower()}" for phase, (letter, _) in PHASES.items())


@dataclass(frozen=True)
class CompletedNodeClaim:
    nodeclaim: NodeClaimSummary
    outcome: NodeClaimOutcome


@dataclass(frozen=True)
class PhaseInterval:
    """Seconds since the start of the axis."""

    phase: Phase
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def timeline_table(completed: Sequence[CompletedNodeClaim], *, start: datetime, width: int = 44) -> Table:
    """In the order of creation; `start` is the zero of the axis."""
    total_seconds = max(
        (interval.end for one in completed for interval in phase_intervals(one.outcome.history, start)), default=1.0
    )
    table = Table(
        title=f"Seconds per phase of each node; the timeline covers {total_seconds:.1f} s: {LEGEND}",
        title_justify="left",
    )
    for name in ("NodeClaim", "type", "zone", "reason"):
        table.add_column(name, no_wrap=True)
    for _, title in PHASES.values():
        table.add_column(title, justify="right")
    table.add_column("timeline", no_wrap=True, min_width=width)
    for one in sorted(completed, key=lambda one: one.outcome.history[0].at):
        table.add_row(*_timeline_row(one, start, total_seconds, width))
    return table


def _timeline_row(one: CompletedNodeClaim, start: datetime, total_seconds: float, width: int) -> list[str]:
    intervals = phase_intervals(one.outcome.history, start)
    seconds: dict[Phase, float] = {}
    for interval in intervals:
        seconds[interval.phase] = seconds.get(interval.phase, 0.0) + interval.seconds
    return [
        one.outcome.name,
        one.outcome.instance_type or "-",
        one.nodeclaim.zone or "-",
        one.outcome.reason or "-",
        *(f"{seconds[phase]:.1f}" if phase in seconds else "-" for phase in PHASES),
        render_bar(intervals, total_seconds, width),
    ]


def phase_intervals(steps: Sequence[Step], start: datetime) -> list[PhaseInterval]:
    """Each step ends the phase of the previous step."""
    starts = [(step.phase, (step.at - start).total_seconds()) for step in steps]
    return [PhaseInterval(phase, begin, end) for (phase, begin), (_, end) in pairwise(starts)]


def render_bar(intervals: Sequence[PhaseInterval], total_seconds: float, width: int) -> str:
    """One letter per slot of the axis, and at least one per phase."""
    slots = [" "] * width
    scale = width / total_seconds if total_seconds > 0 else 0.0
    for interval in intervals:
        first = min(width - 1, max(0, int(interval.begin * scale)))
        last = min(width, max(first + 1, int(interval.end * scale)))
        slots[first:last] = PHASES[interval.phase][0] * (last - first)
    return "".join(slots).rstrip()


def calls_table(calls: Mapping[str, int]) -> Table:
    table = Table("action", Column("calls", justify="right"), title=f"AWS calls: {sum(calls.values())}")
    table.title_justify = "left"
    for action, count in sorted(calls.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(action, str(count))
    return table
