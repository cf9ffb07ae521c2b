"""One node's story: what is so now, then how it came to be. As lines for people, and whole for scripts.

What happened to a workflow, in words, from its history alone: no worker is needed, and a file will do.

What a workflow had done for it: its activities, each with how it ended and how long that took, from its history.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.cli.nodes.workflows import NodeLife, as_json
from tenure.model.base import few
from tenure.model.nodeclaim_history import ClaimOutcome, Step

_OURS: Final = "Tenure"
_ENDS: Final = {
    "COMPLETED": "ended",
    "FAILED": "failed",
    "TIMED_OUT": "ran out of time",
    "CANCELED": "was cancelled",
    "TERMINATED": "was terminated by hand",
    "CONTINUED_AS_NEW": "goes on in a new run",
}


@dataclass(frozen=True)
class Happened:
    at: datetime
    kind: str
    """`life`, `shown`, `activity`, `timer`, `signal` or `update`."""
    said: str

    def as_json(self) -> dict[str, str]:
        return {"at": self.at.isoformat(), "kind": self.kind, "said": self.said}


def happened(events: Iterable[HistoryEvent]) -> list[Happened]:
    """In order. Workflow tasks, which are the machinery's own, are left out."""
    known: dict[int, HistoryEvent] = {}
    found: list[Happened] = []
    for event in events:
        known[event.event_id] = event
        at = event.event_time.ToDatetime(tzinfo=UTC)
        found += [Happened(at, kind, said) for kind, said in _words(event, known)]
    return found


def _words(event: HistoryEvent, known: dict[int, HistoryEvent]) -> Iterator[tuple[str, str]]:
    name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
    told: Any = getattr(event, event.WhichOneof("attributes") or "", None)
    if name == "WORKFLOW_EXECUTION_STARTED":
        yield "life", "begins"
    elif name == "WORKFLOW_EXECUTION_SIGNALED":
        yield "signal", told.signal_name
    elif name == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
        yield "update", told.accepted_request.input.name
    elif name == "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES":
        if shown := _shown(told.search_attributes.indexed_fields):
            yield "shown", shown
    elif name == "ACTIVITY_TASK_SCHEDULED":
        yield "activity", f"{called(event, told.activity_type.name)} begins"
    elif name.startswith("ACTIVITY_TASK_") and name != "ACTIVITY_TASK_STARTED":
        begun = known.get(told.scheduled_event_id)
        what = begun.activity_task_scheduled_event_attributes.activity_type.name if begun else "an activity"
        yield "activity", f"{called(begun, what)} {end_of(name.removeprefix('ACTIVITY_TASK_'), told)}"
    elif name in ("TIMER_STARTED", "TIMER_FIRED", "TIMER_CANCELED"):
        yield from _timer(name, event, told, known)
    elif name.startswith("WORKFLOW_EXECUTION_") and (end := _ENDS.get(name.removeprefix("WORKFLOW_EXECUTION_"))):
        yield "life", f"{end}{_why(told)}"


def _timer(name: str, event: HistoryEvent, told: Any, known: dict[int, HistoryEvent]) -> Iterator[tuple[str, str]]:
    if name == "TIMER_STARTED":
        seconds = told.start_to_fire_timeout.ToTimedelta().total_seconds()
        yield "timer", f"{called(event, 'waits')}, {seconds:g} s at most"
    elif name == "TIMER_FIRED":
        yield "timer", f"{called(known.get(told.started_event_id), 'a wait')} is over"


def _shown(fields: Any) -> str:
    """`Phase Ready, NodeName n1`; what no longer holds is not named."""
    read = pydantic_data_converter.payload_converter.from_payload
    values = {name.removeprefix(_OURS): read(one) for name, one in sorted(fields.items()) if name.startswith(_OURS)}
    return ", ".join(f"{name} {value}" for name, value in values.items() if value not in (None, [], ""))


def called(event: HistoryEvent | None, name: str) -> str:
    """With its summary, as Temporal's UI has it."""
    if event is None or not event.user_metadata.HasField("summary"):
        return name
    said = pydantic_data_converter.payload_converter.from_payload(event.user_metadata.summary)
    return f"{name} ({said})"


def end_of(word: str, told: Any) -> str:
    """Of an activity, by the last word of its event."""
    words = {"COMPLETED": "is done", "CANCEL_REQUESTED": "is asked to stop", "CANCELED": "has stopped"}
    return words.get(word) or f"{word.lower().replace('_', ' ')}{_why(told)}"


def _why(told: Any) -> str:
    failure = getattr(told, "failure", None)
    message = failure.message if failure is not None else getattr(told, "reason", "")
    return f": {' '.join(message.split())[:200]}" if message else ""


_PREFIX: Final = "EVENT_TYPE_ACTIVITY_TASK_"


@dataclass(frozen=True)
class Call:
    at: datetime
    what: str
    """The activity's name and summary."""
    end: str = ""
    """How it ended; empty while it is under way."""
    seconds: float = 0.0
    """From when it was asked for, waits and tries included."""
    tries: int = 1
    """Of one that is under way, those that Temporal has written down: 1."""

    def line(self) -> str:
        if not self.end:
            return f"{self.what} is under way"
        tried = f" at try {self.tries}" if self.tries > 1 else ""
        return f"{self.what} {self.end}{tried}, {self.seconds:.1f} s"

    def as_json(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "call": self.what,
            "end": self.end or None,
            "seconds": round(self.seconds, 3) if self.end else None,
            "tries": self.tries,
        }


def calls(events: Iterable[HistoryEvent]) -> list[Call]:
    """In the order in which they were asked for."""
    found: dict[int, Call] = {}
    for event in events:
        name = EventType.Name(event.event_type)
        if not name.startswith(_PREFIX):
            continue
        at = event.event_time.ToDatetime(tzinfo=UTC)
        told: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        word = name.removeprefix(_PREFIX)
        if word == "SCHEDULED":
            found[event.event_id] = Call(at, called(event, told.activity_type.name))
        elif (begun := found.get(told.scheduled_event_id)) is None:
            continue
        elif word == "STARTED":
            found[told.scheduled_event_id] = replace(begun, tries=max(told.attempt, 1))
        elif word != "CANCEL_REQUESTED":
            seconds = (at - begun.at).total_seconds()
            found[told.scheduled_event_id] = replace(begun, end=end_of(word, told), seconds=seconds)
    return list(found.values())


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
