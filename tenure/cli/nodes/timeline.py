"""The explanation of one node (current state, then history), and the history of any workflow as text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.apis.durations import format_duration
from tenure.cli.nodes.workflows import NodeClaimSummary, as_json, format_span
from tenure.model.base import format_short_list
from tenure.model.nodeclaim.history import NodeClaimExplanation, NodeClaimOutcome, Phase, Step

_OURS: Final = "Tenure"
_ENDS: Final = {
    "COMPLETED": "ended",
    "FAILED": "failed",
    "TIMED_OUT": "timed out",
    "CANCELED": "was cancelled",
    "TERMINATED": "was terminated",
    "CONTINUED_AS_NEW": "continued as new",
}


@dataclass(frozen=True)
class HistoryEntry:
    at: datetime
    kind: str
    """`life`, `shown` (search attributes), `activity`, `timer`, `signal` or `update`."""
    text: str

    def as_json(self) -> dict[str, str]:
        return {"at": self.at.isoformat(), "kind": self.kind, "message": self.text}


def list_history_entries(events: Iterable[HistoryEvent]) -> list[HistoryEntry]:
    """In order; workflow tasks are omitted."""
    known: dict[int, HistoryEvent] = {}
    found: list[HistoryEntry] = []
    for event in events:
        known[event.event_id] = event
        at = event.event_time.ToDatetime(tzinfo=UTC)
        found += [HistoryEntry(at, kind, text) for kind, text in _describe_event(event, known)]
    return found


def _describe_event(event: HistoryEvent, known: dict[int, HistoryEvent]) -> Iterator[tuple[str, str]]:
    name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
    attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
    if name == "WORKFLOW_EXECUTION_STARTED":
        yield "life", "started"
    elif name == "WORKFLOW_EXECUTION_SIGNALED":
        yield "signal", attributes.signal_name
    elif name == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
        yield "update", attributes.accepted_request.input.name
    elif name == "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES":
        if text := _format_search_attributes(attributes.search_attributes.indexed_fields):
            yield "shown", text
    elif name == "ACTIVITY_TASK_SCHEDULED":
        yield "activity", f"{format_call_name(event, attributes.activity_type.name)} started"
    elif name.startswith("ACTIVITY_TASK_") and name != "ACTIVITY_TASK_STARTED":
        begun = known.get(attributes.scheduled_event_id)
        what = begun.activity_task_scheduled_event_attributes.activity_type.name if begun else "an activity"
        ended = describe_activity_end(name.removeprefix("ACTIVITY_TASK_"), attributes)
        yield "activity", f"{format_call_name(begun, what)} {ended}"
    elif name in ("TIMER_STARTED", "TIMER_FIRED", "TIMER_CANCELED"):
        yield from _describe_timer(name, event, attributes, known)
    elif name.startswith("WORKFLOW_EXECUTION_") and (end := _ENDS.get(name.removeprefix("WORKFLOW_EXECUTION_"))):
        yield "life", f"{end}{_failure_suffix(attributes)}"


def _describe_timer(
    name: str, event: HistoryEvent, attributes: Any, known: dict[int, HistoryEvent]
) -> Iterator[tuple[str, str]]:
    if name == "TIMER_STARTED":
        longest = format_duration(attributes.start_to_fire_timeout.ToTimedelta())
        yield "timer", f"{format_call_name(event, 'waits')}, at most {longest}"
    elif name == "TIMER_FIRED":
        yield "timer", f"{format_call_name(known.get(attributes.started_event_id), 'a wait')} is over"


def _format_search_attributes(fields: Any) -> str:
    """`Phase Ready, NodeName n1`, without attributes that were removed."""
    read = pydantic_data_converter.payload_converter.from_payload
    values = {name.removeprefix(_OURS): read(one) for name, one in sorted(fields.items()) if name.startswith(_OURS)}
    return ", ".join(f"{name} {value}" for name, value in values.items() if value not in (None, [], ""))


def format_call_name(event: HistoryEvent | None, name: str) -> str:
    """With its summary, as in Temporal's UI."""
    if event is None or not event.user_metadata.HasField("summary"):
        return name
    summary = pydantic_data_converter.payload_converter.from_payload(event.user_metadata.summary)
    return f"{name} ({summary})"


def describe_activity_end(suffix: str, attributes: Any) -> str:
    """`suffix`: the end of the event type, such as `TIMED_OUT`."""
    descriptions = {"COMPLETED": "completed", "CANCEL_REQUESTED": "cancel requested", "CANCELED": "canceled"}
    return descriptions.get(suffix) or f"{suffix.lower().replace('_', ' ')}{_failure_suffix(attributes)}"


def _failure_suffix(attributes: Any) -> str:
    failure = getattr(attributes, "failure", None)
    message = failure.message if failure is not None else getattr(attributes, "reason", "")
    return f": {' '.join(message.split())[:200]}" if message else ""


_PREFIX: Final = "EVENT_TYPE_ACTIVITY_TASK_"


@dataclass(frozen=True)
class ActivityCall:
    at: datetime
    what: str
    """The activity's name and summary."""
    end: str = ""
    """Its outcome; empty while it is running."""
    seconds: float = 0.0
    """Since it was scheduled, including retries."""
    tries: int = 1
    """1 while it is running: Temporal records the number of attempts at the end."""

    def format_line(self) -> str:
        if not self.end:
            return f"{self.what} is running"
        tried = f" at attempt {self.tries}" if self.tries > 1 else ""
        return f"{self.what} {self.end}{tried}, {self.seconds:.1f} s"

    def as_json(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "call": self.what,
            "end": self.end or None,
            "seconds": round(self.seconds, 3) if self.end else None,
            "tries": self.tries,
        }


def list_activity_calls(events: Iterable[HistoryEvent]) -> list[ActivityCall]:
    """In the order of scheduling."""
    found: dict[int, ActivityCall] = {}
    for event in events:
        name = EventType.Name(event.event_type)
        if not name.startswith(_PREFIX):
            continue
        at = event.event_time.ToDatetime(tzinfo=UTC)
        attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        suffix = name.removeprefix(_PREFIX)
        if suffix == "SCHEDULED":
            found[event.event_id] = ActivityCall(at, format_call_name(event, attributes.activity_type.name))
            continue
        scheduled = attributes.scheduled_event_id
        if (begun := found.get(scheduled)) is None:
            continue
        if suffix == "STARTED":
            found[scheduled] = replace(begun, tries=max(attributes.attempt, 1))
        elif suffix != "CANCEL_REQUESTED":
            end, seconds = describe_activity_end(suffix, attributes), (at - begun.at).total_seconds()
            found[scheduled] = replace(begun, end=end, seconds=seconds)
    return list(found.values())


NAMED: Final = 8
"""Evicted pods that are listed by name."""
CALLS: Final = 8
"""Number of latest calls that are listed."""
_PAUSED: Final = "not disrupted (Paused;"
"""Such a line names the pause, so it is not listed again."""


@dataclass(frozen=True)
class NodeExplanation:
    nodeclaim: NodeClaimSummary
    state: NodeClaimExplanation = field(default_factory=NodeClaimExplanation)
    reason: str = ""
    """Why it was deleted."""
    remark: str = ""
    disruption: Sequence[str] = ()
    pauses: Sequence[str] = ()
    """Of its NodePool and of the cluster."""
    commands: Sequence[str] = ()
    """Disruption commands in progress."""
    calls: Sequence[ActivityCall] = ()
    """Activities of its last run."""

    def format_text(self, now: datetime | None = None) -> str:
        """`now`: also state how long ago times are. It has no effect for a deleted node."""
        nodeclaim, now = self.nodeclaim, now if self.nodeclaim.open else None
        machine = " ".join(part for part in (nodeclaim.instance_type, nodeclaim.capacity_type, nodeclaim.zone) if part)
        price = f" {nodeclaim.price:.4f} $/h" if nodeclaim.price else ""
        lines = [
            f"NodeClaim {nodeclaim.name}" + (f" · node {nodeclaim.node_name}" if nodeclaim.node_name else ""),
            f"  instance    {nodeclaim.instance_id or 'none'} {machine}{price}".rstrip(),
            f"  phase       {nodeclaim.phase}" + (" (overdue)" if nodeclaim.overdue else ""),
            f"  since       {format_relative_time(nodeclaim.since, now)}",
        ]
        lines += [f"  {name:<10}  {value}" for name, value in self._list_facts(now) if value]
        lines += [format_step(step) for step in self.state.steps]
        lines += self._format_calls()
        return "\n".join(lines)

    def _format_calls(self) -> Iterator[str]:
        if self.calls:
            few_of = f"the last {CALLS} of {len(self.calls)} calls" if len(self.calls) > CALLS else "calls"
            yield f"  {few_of}; with waits and signals: tenure history {self.nodeclaim.name}"
        yield from (f"  {format_time(one.at)}  {one.format_line()}" for one in self.calls[-CALLS:])

    def _list_facts(self, now: datetime | None) -> Iterator[tuple[str, str]]:
        nodeclaim, state, verdict = self.nodeclaim, self.state, self.state.verdict
        deadline = (verdict.deadline if verdict else None) or nodeclaim.deadline
        yield "workflow", nodeclaim.url
        yield "bought for", state.bought_for
        yield "deadline", format_relative_time(deadline, now) if deadline else ""
        yield "blocked by", verdict.message if verdict else nodeclaim.blocked_by
        yield "blocked", f"since {format_relative_time(verdict.since, now)}" if verdict and verdict.since else ""
        yield "action", verdict.remedy if verdict and verdict.remedy not in verdict.sentence else ""
        yield from (("from AWS", line) for line in state.events)
        if not any(line.startswith(_PAUSED) for line in self.disruption):
            yield from (("paused", line) for line in (state.paused, *self.pauses))
        yield from (("drain", line) for line in state.drain)
        yield "drifted", state.drift
        yield "NotReady", state.not_ready
        yield "expires", format_time(state.expires) if state.expires else ""
        yield from (("command", line) for line in self.commands)
        yield from (("disruption", line) for line in self.disruption)
        # Until a drain ends, the list has the pods that it waits for.
        yield "evicted", "" if nodeclaim.phase == Phase.DRAIN.value else format_short_list(state.evicted_pods, NAMED)
        yield "reason", self.reason
        yield "note", self.remark

    def as_json(self) -> dict[str, Any]:
        state = self.state
        return {
            **as_json(self.nodeclaim),
            "verdict": state.verdict.model_dump(mode="json") if state.verdict else None,
            "boughtFor": state.bought_for,
            "events": list(state.events),
            "paused": [one for one in (state.paused, *self.pauses) if one],
            "drain": list(state.drain),
            "drift": state.drift,
            "away": state.not_ready,
            "expires": state.expires.isoformat() if state.expires else None,
            "commands": list(self.commands),
            "disruption": list(self.disruption),
            "drainedOf": list(state.evicted_pods),
            "wentFor": self.reason,
            "note": self.remark,
            "calls": [one.as_json() for one in self.calls],
            "steps": [step.model_dump(mode="json") for step in state.steps],
        }


def explain_completed(nodeclaim: NodeClaimSummary, outcome: NodeClaimOutcome) -> NodeExplanation:
    state = NodeClaimExplanation(
        steps=outcome.history,
        drift=outcome.drift,
        bought_for=outcome.why,
        events=outcome.events,
        evicted_pods=outcome.evicted_pods,
    )
    return NodeExplanation(nodeclaim, state, reason=outcome.reason)


def format_step(step: Step) -> str:
    return f"  {format_time(step.at)}  {step.phase.value:<14}  {step.cause}".rstrip()


def format_relative_time(at: datetime | None, now: datetime | None) -> str:
    """`2026-01-01 12:00:00 UTC, 6m00s ago`, or `in 9m00s`."""
    if at is None or now is None:
        return format_time(at)
    span = f"{format_span(now - at)} ago" if at <= now else f"in {format_span(at - now)}"
    return f"{format_time(at)}, {span}"


def format_time(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC") if at else "-"
