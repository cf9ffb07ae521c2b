"""The AWS events of one node: repeated messages, changes, withdrawals, and messages about the same event.

The queue and the instance status report the same maintenance with different IDs and the same start time. A new start
time from one source applies to both.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tenure.model.interruption.messages import KARPENTERS_KINDS, InterruptionMessage
from tenure.model.interruption.records import ApprovalDecision, Event, TrackedInterruption

MAX_TRACKED: Final = 20
"""Maximum tracked messages of a node; those that are withdrawn or over are dropped first."""
_MANY: Final = TypeAdapter(tuple[TrackedInterruption, ...])


def record_messages(
    known: Sequence[TrackedInterruption], messages: Iterable[InterruptionMessage], now: datetime
) -> tuple[TrackedInterruption, ...]:
    """The tracked messages after new ones. Repeated and older messages change nothing.

    When AWS moves an event, one source reports it before the other. The later report applies, by the time of AWS's
    message or of the status read. A source that repeats its earlier report is only slow. Only a different report from
    it counts as later.
    """
    found = {_message_id(one.message): one for one in known}
    for message in messages:
        before = found.get(_message_id(message))
        if before is None:
            found[_message_id(message)] = _match_moved_event(found.values(), message, now) or TrackedInterruption(
                message=message, received_at=now
            )
        elif _is_update(message, before.own or before.message):
            after = _apply_update(before, message, now)
            found |= _move_counterpart(found.values(), before, after) | {_message_id(message): after}
    retained = list(found.values())
    while len(retained) > MAX_TRACKED:
        retained.remove(next((one for one in retained if one.message.status != "announced"), retained[0]))
    return tuple(retained) if retained != list(known) else tuple(known)


def events_of(known: Iterable[TrackedInterruption]) -> tuple[Event, ...]:
    """Oldest first. The latest message about an event has its state."""
    groups: dict[str, list[TrackedInterruption]] = {}
    for one in known:
        groups.setdefault(event_key(one.message), []).append(one)
    return tuple(_build_event(key, group) for key, group in groups.items())


def event_key(message: InterruptionMessage) -> str:
    """Scheduled events are distinguished by start time, to the minute; other kinds occur once per node."""
    if message.kind != "scheduledChange":
        return message.kind
    starts = message.starts.replace(second=0, microsecond=0).isoformat(timespec="minutes") if message.starts else ""
    return f"{message.kind}@{starts}"


def record_approval(
    known: Sequence[TrackedInterruption], keys: Iterable[str], decision: ApprovalDecision
) -> tuple[TrackedInterruption, ...]:
    matching = {*keys}
    return tuple(
        one.model_copy(update={"decision": decision}) if event_key(one.message) in matching else one for one in known
    )


def end_stopping_events(
    known: Sequence[TrackedInterruption], ready_since: datetime | None
) -> tuple[TrackedInterruption, ...]:
    return tuple(
        one.model_copy(update={"message": one.message.model_copy(update={"status": "over"})})
        if ready_since and one.message.kind == "instanceStopping" and one.message.at < ready_since
        else one
        for one in known
    )


def record_done(known: Sequence[TrackedInterruption], key: str) -> tuple[TrackedInterruption, ...]:
    return tuple(one.model_copy(update={"done": True}) if event_key(one.message) == key else one for one in known)


def format_annotation(known: Iterable[TrackedInterruption]) -> str:
    """The annotation's value: JSON without AWS's descriptions; empty without a current event."""
    alive = {event.key for event in events_of(tuple(known)) if event.status == "announced"}
    retained = tuple(
        one.model_copy(update={"message": _without_text(one.message), "own": one.own and _without_text(one.own)})
        for one in known
        if event_key(one.message) in alive
    )
    return _MANY.dump_json(retained, exclude_defaults=True).decode() if retained else ""


def _without_text(message: InterruptionMessage) -> InterruptionMessage:
    return message.model_copy(update={"text": ""})


def parse_annotation(text: str) -> tuple[TrackedInterruption, ...]:
    """Parse the result of `format_annotation`. Any other text yields no message."""
    if not text:
        return ()
    try:
        return _MANY.validate_json(text)
    except ValidationError:
        return ()


def restore_messages(annotation: str, known: Sequence[TrackedInterruption]) -> tuple[TrackedInterruption, ...]:
    restored = parse_annotation(annotation)
    for one in known:
        restored = record_messages(restored, (one.message,), one.moved or one.received_at)
    known_by_key = {(_message_id(one.message), event_key(one.message)): one for one in known}
    return tuple(
        _with_known_move(one, known_by_key.get((_message_id(one.message), event_key(one.message)))) for one in restored
    )


def _with_known_move(one: TrackedInterruption, since: TrackedInterruption | None) -> TrackedInterruption:
    if since is None:
        return one
    moved = {"moved_from": one.moved_from or since.moved_from, "moved": one.moved or since.moved}
    return one.model_copy(update={"own": one.own or since.own, **moved})


def _message_id(message: InterruptionMessage) -> tuple[str, str]:
    return (message.kind, message.id)


def _move_counterpart(
    known: Iterable[TrackedInterruption], before: TrackedInterruption, after: TrackedInterruption
) -> dict[tuple[str, str], TrackedInterruption]:
    """Move the other source's message about the same event. If two messages have the old start time, the match is
    ambiguous and both stay: too early is safer than too late."""
    if after.message.status != "announced" or event_key(after.message) == event_key(before.message):
        return {}
    counterparts = [
        one
        for one in known
        if one.message.source != after.message.source
        and one.message.status == "announced"
        and event_key(one.message) == event_key(before.message)
    ]
    if len(counterparts) != 1 or counterparts[0].message.at > after.message.at:
        return {}
    return {_message_id(counterparts[0].message): _apply_move(counterparts[0], after)}


def _apply_move(one: TrackedInterruption, mover: TrackedInterruption) -> TrackedInterruption:
    """Apply the start time of `mover`, and keep the last message of the own source."""
    to = {"starts": mover.message.starts, "ends": mover.message.ends, "at": mover.message.at}
    return TrackedInterruption(
        message=one.message.model_copy(update=to),
        received_at=one.received_at,
        moved_from=mover.moved_from,
        moved=mover.moved,
        own=one.own or one.message,
    )


def _match_moved_event(
    known: Iterable[TrackedInterruption], message: InterruptionMessage, now: datetime
) -> TrackedInterruption | None:
    """For the first message about an event that the other source has already moved: the event with the new time. None
    for any other message."""
    tracked = tuple(known)
    mine = {event_key(one.message) for one in tracked if one.message.source == message.source}
    for one in tracked:
        other = one.message
        if one.moved_from is None or one.own or message.source == other.source or event_key(message) in mine:
            continue
        before = event_key(other.model_copy(update={"starts": one.moved_from}))
        if message.status == other.status == "announced" and before == event_key(message) and message.at <= other.at:
            return _apply_move(TrackedInterruption(message=message, received_at=now), one)
    return None


def _is_update(message: InterruptionMessage, before: InterruptionMessage) -> bool:
    if message.at != before.at:
        return message.at > before.at and message.model_copy(update={"at": before.at}) != before
    return message != before and before.status == "announced"


def _apply_update(before: TrackedInterruption, message: InterruptionMessage, now: datetime) -> TrackedInterruption:
    """A new start time makes it another event that is not yet published. A message that ends an event may have no start
    time."""
    if before.own is not None and event_key(message) != event_key(before.message):
        return _apply_own_update(before, before.own, message, now)
    before = before.model_copy(update={"own": None})
    if message.status != "announced":
        starts = message.starts or before.message.starts
        return before.model_copy(update={"message": message.model_copy(update={"starts": starts})})
    if before.message.status != "announced":
        return TrackedInterruption(message=message, received_at=message.at)
    if event_key(message) == event_key(before.message):
        return before.model_copy(update={"message": message})
    return TrackedInterruption(
        message=message, received_at=before.received_at, moved_from=before.message.starts, moved=now
    )


def _apply_own_update(
    before: TrackedInterruption, own: InterruptionMessage, message: InterruptionMessage, now: datetime
) -> TrackedInterruption:
    """Apply a later message of a source that has not reported the move yet. It ends only the event with the start time
    that this source knows."""
    if message.status != "announced":
        return TrackedInterruption(
            message=message.model_copy(update={"starts": message.starts or own.starts}), received_at=before.received_at
        )
    if event_key(message) == event_key(own) or message.at < before.message.at:
        return before.model_copy(update={"own": message})
    return TrackedInterruption(
        message=message, received_at=before.received_at, moved_from=before.message.starts, moved=now
    )


def _build_event(key: str, group: Sequence[TrackedInterruption]) -> Event:
    latest = max(group, key=lambda one: (one.message.at, one.message.status != "announced"))
    message = latest.message
    # Messages from before a withdrawal or an end belong to an earlier occurrence.
    ended = max((one.message.at for one in group if one.message.status != "announced"), default=None)
    alive = [one for one in group if ended is None or one.message.at > ended] or [latest]
    return Event(
        key=key,
        kind=message.kind,
        reason=KARPENTERS_KINDS.get((message.kind, message.source), message.kind),
        received_at=min(one.received_at for one in alive),
        starts=message.starts,
        ends=message.ends,
        code=message.code or next((one.message.code for one in alive if one.message.code), ""),
        text=message.text or next((one.message.text for one in alive if one.message.text), ""),
        status=message.status,
        moved_from=next((one.moved_from for one in alive if one.moved_from), None),
        moved=max((one.moved for one in alive if one.moved), default=None),
        decision=next((one.decision for one in alive if one.decision), None),
        done=any(one.done for one in alive),
    )
