"""AWS events that one node tracks: repeats, changes, withdrawals, and messages about the same event.

The queue and the instance status report the same maintenance with different ids and one start. When one source reports
another start first, it applies to both.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tenure.model.interruption.notices import KARPENTERS_KINDS, InterruptionMessage
from tenure.model.interruption.records import ApprovalDecision, Event, TrackedInterruption

MAX_TRACKED: Final = 20
"""Messages that a node tracks; withdrawn ones are dropped first."""
_MANY: Final = TypeAdapter(tuple[TrackedInterruption, ...])


def record_messages(
    known: Sequence[TrackedInterruption], notices: Iterable[InterruptionMessage], now: datetime
) -> tuple[TrackedInterruption, ...]:
    """The tracked messages after new ones. Repeats and older messages change nothing.

    AWS moves an event, and one source reports it before the other. The later report counts, by AWS's time or the time
    of EC2's status. A source that repeats its earlier report is only slow: a different report of its own counts as
    later.
    """
    found = {_message_id(one.notice): one for one in known}
    for notice in notices:
        before = found.get(_message_id(notice))
        if before is None:
            found[_message_id(notice)] = _match_moved_event(found.values(), notice, now) or TrackedInterruption(
                notice=notice, received_at=now
            )
        elif _is_update(notice, before.own or before.notice):
            after = _apply_update(before, notice, now)
            found |= _move_counterpart(found.values(), before, after) | {_message_id(notice): after}
    retained = list(found.values())
    while len(retained) > MAX_TRACKED:
        retained.remove(next((one for one in retained if one.notice.status != "announced"), retained[0]))
    return tuple(retained) if retained != list(known) else tuple(known)


def events_of(known: Iterable[TrackedInterruption]) -> tuple[Event, ...]:
    """Oldest first. Of messages about the same event, the latest has its state."""
    groups: dict[str, list[TrackedInterruption]] = {}
    for one in known:
        groups.setdefault(event_key(one.notice), []).append(one)
    return tuple(_build_event(key, group) for key, group in groups.items())


def event_key(notice: InterruptionMessage) -> str:
    """Maintenance events differ by start time, to the minute; other kinds occur once per node."""
    if notice.kind != "scheduledChange":
        return notice.kind
    starts = notice.starts.replace(second=0, microsecond=0).isoformat(timespec="minutes") if notice.starts else ""
    return f"{notice.kind}@{starts}"


def record_approval(
    known: Sequence[TrackedInterruption], keys: Iterable[str], decision: ApprovalDecision
) -> tuple[TrackedInterruption, ...]:
    matching = {*keys}
    return tuple(
        one.model_copy(update={"decision": decision}) if event_key(one.notice) in matching else one for one in known
    )


def end_stopping_events(
    known: Sequence[TrackedInterruption], ready_since: datetime | None
) -> tuple[TrackedInterruption, ...]:
    return tuple(
        one.model_copy(update={"notice": one.notice.model_copy(update={"status": "over"})})
        if ready_since and one.notice.kind == "instanceStopping" and one.notice.at < ready_since
        else one
        for one in known
    )


def record_done(known: Sequence[TrackedInterruption], key: str) -> tuple[TrackedInterruption, ...]:
    return tuple(one.model_copy(update={"done": True}) if event_key(one.notice) == key else one for one in known)


def format_annotation(known: Iterable[TrackedInterruption]) -> str:
    """As the annotation has it: JSON, without AWS's prose. Empty where AWS has announced nothing that still holds."""
    alive = {event.key for event in events_of(tuple(known)) if event.status == "announced"}
    retained = tuple(
        one.model_copy(update={"notice": _without_text(one.notice), "own": one.own and _without_text(one.own)})
        for one in known
        if event_key(one.notice) in alive
    )
    return _MANY.dump_json(retained, exclude_defaults=True).decode() if retained else ""


def _without_text(notice: InterruptionMessage) -> InterruptionMessage:
    return notice.model_copy(update={"text": ""})


def parse_annotation(text: str) -> tuple[TrackedInterruption, ...]:
    """Parse the form of `format_annotation`. Any other text yields no message."""
    if not text:
        return ()
    try:
        return _MANY.validate_json(text)
    except ValidationError:
        return ()


def restore_messages(annotation: str, known: Sequence[TrackedInterruption]) -> tuple[TrackedInterruption, ...]:
    restored = parse_annotation(annotation)
    for one in known:
        restored = record_messages(restored, (one.notice,), one.moved or one.received_at)
    known_by_key = {(_message_id(one.notice), event_key(one.notice)): one for one in known}
    return tuple(
        _with_known_move(one, known_by_key.get((_message_id(one.notice), event_key(one.notice)))) for one in restored
    )


def _with_known_move(one: TrackedInterruption, since: TrackedInterruption | None) -> TrackedInterruption:
    if since is None:
        return one
    moved = {"moved_from": one.moved_from or since.moved_from, "moved": one.moved or since.moved}
    return one.model_copy(update={"own": one.own or since.own, **moved})


def _message_id(notice: InterruptionMessage) -> tuple[str, str]:
    return (notice.kind, notice.id)


def _move_counterpart(
    known: Iterable[TrackedInterruption], before: TrackedInterruption, after: TrackedInterruption
) -> dict[tuple[str, str], TrackedInterruption]:
    """Move the other source's report of the same event. If it has two reports of that time, the match is ambiguous and
    both stay: too early is safer than too late."""
    if after.notice.status != "announced" or event_key(after.notice) == event_key(before.notice):
        return {}
    counterparts = [
        one
        for one in known
        if one.notice.source != after.notice.source
        and one.notice.status == "announced"
        and event_key(one.notice) == event_key(before.notice)
    ]
    if len(counterparts) != 1 or counterparts[0].notice.at > after.notice.at:
        return {}
    return {_message_id(counterparts[0].notice): _apply_move(counterparts[0], after)}


def _apply_move(one: TrackedInterruption, mover: TrackedInterruption) -> TrackedInterruption:
    """Apply the time of `mover`, and keep the last report of its own source."""
    to = {"starts": mover.notice.starts, "ends": mover.notice.ends, "at": mover.notice.at}
    return TrackedInterruption(
        notice=one.notice.model_copy(update=to),
        received_at=one.received_at,
        moved_from=mover.moved_from,
        moved=mover.moved,
        own=one.own or one.notice,
    )


def _match_moved_event(
    known: Iterable[TrackedInterruption], notice: InterruptionMessage, now: datetime
) -> TrackedInterruption | None:
    """A first word that is older than the other source's that its event was moved; None for any other."""
    tracked = tuple(known)
    mine = {event_key(one.notice) for one in tracked if one.notice.source == notice.source}
    for one in tracked:
        message = one.notice
        if one.moved_from is None or one.own or message.source == notice.source or event_key(message) in mine:
            continue
        before = event_key(message.model_copy(update={"starts": one.moved_from}))
        if message.status == notice.status == "announced" and before == event_key(notice) and notice.at <= message.at:
            return _apply_move(TrackedInterruption(notice=notice, received_at=now), one)
    return None


def _is_update(notice: InterruptionMessage, before: InterruptionMessage) -> bool:
    if notice.at != before.at:
        return notice.at > before.at and notice.model_copy(update={"at": before.at}) != before
    return notice != before and before.status == "announced"


def _apply_update(before: TrackedInterruption, notice: InterruptionMessage, now: datetime) -> TrackedInterruption:
    """Another time makes it a different event, not yet reported. A report that only ends an event has no time."""
    if before.own is not None and event_key(notice) != event_key(before.notice):
        return _apply_own_update(before, before.own, notice, now)
    before = before.model_copy(update={"own": None})
    if notice.status != "announced":
        starts = notice.starts or before.notice.starts
        return before.model_copy(update={"notice": notice.model_copy(update={"starts": starts})})
    if before.notice.status != "announced":
        return TrackedInterruption(notice=notice, received_at=notice.at)
    if event_key(notice) == event_key(before.notice):
        return before.model_copy(update={"notice": notice})
    return TrackedInterruption(
        notice=notice, received_at=before.received_at, moved_from=before.notice.starts, moved=now
    )


def _apply_own_update(
    before: TrackedInterruption, own: InterruptionMessage, notice: InterruptionMessage, now: datetime
) -> TrackedInterruption:
    """Apply a later report of a source that has not yet reported the move. It ends only the event as that source knew
    it."""
    if notice.status != "announced":
        return TrackedInterruption(
            notice=notice.model_copy(update={"starts": notice.starts or own.starts}), received_at=before.received_at
        )
    if event_key(notice) == event_key(own) or notice.at < before.notice.at:
        return before.model_copy(update={"own": notice})
    return TrackedInterruption(
        notice=notice, received_at=before.received_at, moved_from=before.notice.starts, moved=now
    )


def _build_event(key: str, group: Sequence[TrackedInterruption]) -> Event:
    latest = max(group, key=lambda one: (one.notice.at, one.notice.status != "announced"))
    notice = latest.notice
    # What was before AWS took it back, or was over, is another time of the same.
    ended = max((one.notice.at for one in group if one.notice.status != "announced"), default=None)
    alive = [one for one in group if ended is None or one.notice.at > ended] or [latest]
    return Event(
        key=key,
        kind=notice.kind,
        reason=KARPENTERS_KINDS.get((notice.kind, notice.source), notice.kind),
        received_at=min(one.received_at for one in alive),
        starts=notice.starts,
        ends=notice.ends,
        code=notice.code or next((one.notice.code for one in alive if one.notice.code), ""),
        text=notice.text or next((one.notice.text for one in alive if one.notice.text), ""),
        status=notice.status,
        moved_from=next((one.moved_from for one in alive if one.moved_from), None),
        moved=max((one.moved for one in alive if one.moved), default=None),
        decision=next((one.decision for one in alive if one.decision), None),
        done=any(one.done for one in alive),
    )
