"""One node's story: what is so now, then how it came to be. As lines for people, and whole for scripts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cli.calls import Call
from cli.lives import NodeLife, as_json
from model.story import ClaimOutcome, Step
from model.words import few

NAMED: Final = 8
CALLS: Final = 8


@dataclass(frozen=True)
class Story:
    life: NodeLife
    steps: Sequence[Step] = ()
    reason: str = ""
    """What it went for."""
    note: str = ""
    drift: str = ""
    drain: Sequence[str] = ()
    expires: datetime | None = None
    bought_for: str = ""
    away: str = ""
    events: Sequence[str] = ()
    disruption: Sequence[str] = ()
    paused: Sequence[str] = ()
    left: Sequence[str] = ()
    """Pods that had to go."""
    calls: Sequence[Call] = ()
    """Of its last run."""

    def text(self) -> str:
        life = self.life
        place = " ".join(part for part in (life.instance_type, life.capacity_type, life.zone) if part)
        price = f" {life.price:.4f} $/h" if life.price else ""
        lines = [
            f"NodeClaim {life.name}" + (f" · node {life.node_name}" if life.node_name else ""),
            f"  instance    {life.instance_id or 'none'} {place}{price}".rstrip(),
            f"  phase       {life.phase}" + (" (overdue)" if life.overdue else ""),
            f"  since       {moment_of(life.since)}",
        ]
        lines += [f"  {name:<10}  {said}" for name, said in self._facts() if said]
        lines += [line_of(step) for step in self.steps]
        lines += self._calls()
        return "\n".join(lines)

    def _calls(self) -> Iterator[str]:
        """The last ones; where all of them are told."""
        if self.calls:
            few_of = f"the last {CALLS} of {len(self.calls)} calls" if len(self.calls) > CALLS else "calls"
            yield f"  {few_of}; with waits and signals: tenure history {self.life.name}"
        yield from (f"  {moment_of(one.at)}  {one.line()}" for one in self.calls[-CALLS:])

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "bought for", self.bought_for
        yield "deadline", moment_of(self.life.deadline) if self.life.deadline else ""
        yield "blocked by", self.life.blocked_by
        yield from (("from AWS", line) for line in self.events)
        yield from (("paused", line) for line in self.paused)
        yield from (("drain", line) for line in self.drain)
        yield "drifted", self.drift
        yield "away", self.away
        yield "expires", moment_of(self.expires) if self.expires else ""
        yield from (("disruption", line) for line in self.disruption)
        yield "drained of", few(self.left, NAMED)
        yield "went for", self.reason
        yield "note", self.note

    def as_json(self) -> dict[str, Any]:
        return {
            **as_json(self.life),
            "boughtFor": self.bought_for,
            "events": list(self.events),
            "paused": list(self.paused),
            "drain": list(self.drain),
            "drift": self.drift,
            "away": self.away,
            "expires": self.expires.isoformat() if self.expires else None,
            "disruption": list(self.disruption),
            "drainedOf": list(self.left),
            "wentFor": self.reason,
            "note": self.note,
            "calls": [one.as_json() for one in self.calls],
            "steps": [step.model_dump(mode="json") for step in self.steps],
        }


def ended(life: NodeLife, outcome: ClaimOutcome) -> Story:
    return Story(
        life,
        outcome.story,
        reason=outcome.reason,
        drift=outcome.drift,
        bought_for=outcome.why,
        events=outcome.events,
        left=outcome.left,
    )


def line_of(step: Step) -> str:
    return f"  {moment_of(step.at)}  {step.phase.value:<14}  {step.cause}".rstrip()


def moment_of(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "-"
