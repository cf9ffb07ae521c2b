"""What a workflow had done for it: its activities, each with how it ended and how long that took, from its history."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from cli.happened import called, end_of

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
