"""What happened to a workflow, in words, from its history alone: no worker is needed, and a file will do."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.contrib.pydantic import pydantic_data_converter

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
