"""The demo's last page: each node's life on one time axis, and what was asked of AWS for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from rich.table import Table

from tenure.cli.nodes.workflows import NodeLife
from tenure.model.nodeclaim_state import ClaimOutcome, Phase, Step

COLUMNS = {
    Phase.LAUNCH: "launch",
    Phase.REGISTRATION: "regis.",
    Phase.INITIALIZATION: "init.",
    Phase.READY: "ready",
    Phase.DRAIN: "drain",
    Phase.TERMINATION: "term.",
}
LETTERS = {
    Phase.LAUNCH: "L",
    Phase.REGISTRATION: "R",
    Phase.INITIALIZATION: "I",
    Phase.READY: "=",
    Phase.DRAIN: "D",
    Phase.TERMINATION: "T",
}
LEGEND = "L launch  R registration  I initialization  = ready  D drain  T termination"


@dataclass(frozen=True)
class LifeStory:
    """A life that ended, and where."""

    life: NodeLife
    outcome: ClaimOutcome


@dataclass(frozen=True)
class Stay:
    """How long a node was in one phase: seconds since the start of the axis."""

    phase: Phase
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def timeline(stories: Sequence[LifeStory], *, start: datetime, width: int = 44) -> Table:
    """Nodes in the order of their creation; `start` is the axis's zero."""
    lasting = max((stay.end for one in stories for stay in stays(one.outcome.story, start)), default=1.0)
    table = Table(
        title=f"Every node's life: seconds in each phase, and {lasting:.1f} s from left to right: {LEGEND}",
        title_justify="left",
    )
    for name in ("NodeClaim", "type", "zone", "went for"):
        table.add_column(name, no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    table.add_column("life", no_wrap=True, min_width=width)
    for one in sorted(stories, key=lambda one: one.outcome.story[0].at):
        table.add_row(*_row(one, start, lasting, width))
    return table


def _row(one: LifeStory, start: datetime, lasting: float, width: int) -> list[str]:
    spent = stays(one.outcome.story, start)
    seconds: dict[Phase, float] = {}
    for stay in spent:
        seconds[stay.phase] = seconds.get(stay.phase, 0.0) + stay.seconds
    return [
        one.outcome.name,
        one.outcome.instance_type or "-",
        one.life.zone or "-",
        one.outcome.reason or "-",
        *(f"{seconds[phase]:.1f}" if phase in seconds else "-" for phase in LETTERS),
        bar(spent, lasting, width),
    ]


def stays(story: Sequence[Step], start: datetime) -> list[Stay]:
    """The phases of a story with their times; the last step ends the one before it."""
    moments = [(step.phase, (step.at - start).total_seconds()) for step in story]
    return [Stay(phase, begin, end) for (phase, begin), (_, end) in pairwise(moments)]


def bar(spent: Sequence[Stay], lasting: float, width: int) -> str:
    """One letter a slot of the axis; each phase gets at least one, however short it was."""
    slots = [" "] * width
    scale = width / lasting if lasting > 0 else 0.0
    for stay in spent:
        first = min(width - 1, max(0, int(stay.begin * scale)))
        last = min(width, max(first + 1, int(stay.end * scale)))
        slots[first:last] = LETTERS[stay.phase] * (last - first)
    return "".join(slots).rstrip()


def calls_table(calls: Mapping[str, int], *, title: str = "AWS calls") -> Table:
    table = Table(title=f"{title}: {sum(calls.values())}", title_justify="left")
    table.add_column("action", no_wrap=True)
    table.add_column("calls", justify="right")
    for action, count in sorted(calls.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(action, str(count))
    return table
