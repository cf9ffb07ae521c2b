"""AWS's notices as one node remembers them: repeats, changes, withdrawals, and which of them tell of the same event.

Pure. The same maintenance comes from the queue and from the instance's status, with different ids and one start.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from model.interruptions import KARPENTERS_KINDS, Notice
from model.remembered import Answer, Event, Remembered

MOST: Final = 20
"""Notices that a node remembers; what AWS took back is forgotten first."""
_MANY: Final = TypeAdapter(tuple[Remembered, ...])


def noted(known: Sequence[Remembered], notices: Iterable[Notice], now: datetime) -> tuple[Remembered, ...]:
    """The memory after some notices. Repeats, and what is older than what is known, change nothing."""
    found = {_id(one.notice): one for one in known}
    for notice in notices:
        before = found.get(_id(notice))
        if before is None:
            found[_id(notice)] = Remembered(notice=notice, heard=now)
        elif _is_news(notice, before.notice):
            found[_id(notice)] = _changed(before, notice)
    kept = list(found.values())
    while len(kept) > MOST:
        kept.remove(next((one for one in kept if one.notice.status != "announced"), kept[0]))
    return tuple(kept) if kept != list(known) else tuple(known)


def events_of(known: Iterable[Remembered]) -> tuple[Event, ...]:
    """Oldest first. Of notices that tell of the same event the latest says how it stands."""
    groups: dict[str, list[Remembered]] = {}
    for one in known:
        groups.setdefault(key_of(one.notice), []).append(one)
    return tuple(_event(key, group) for key, group in groups.items())


def key_of(notice: Notice) -> str:
    """Maintenance is told apart by when AWS acts, to the minute; of the other kinds a node has one at a time."""
    if notice.kind != "scheduledChange":
        return notice.kind
    starts = notice.starts.replace(second=0, microsecond=0).isoformat(timespec="minutes") if notice.starts else ""
    return f"{notice.kind}@{starts}"


def answered(known: Sequence[Remembered], keys: Iterable[str], answer: Answer) -> tuple[Remembered, ...]:
    """The memory after a person answered for these events."""
    wanted = {*keys}
    return tuple(one.model_copy(update={"answer": answer}) if key_of(one.notice) in wanted else one for one in known)


def settled(known: Sequence[Remembered], ready_since: datetime | None) -> tuple[Remembered, ...]:
    """The memory of a node that is Ready since then: it runs again, and is stopped no more."""
    return tuple(
        one.model_copy(update={"notice": one.notice.model_copy(update={"status": "over"})})
        if ready_since and one.notice.kind == "instanceStopping" and one.notice.at < ready_since
        else one
        for one in known
    )


def done(known: Sequence[Remembered], key: str) -> tuple[Remembered, ...]:
    """The memory after what an event asked for was done."""
    return tuple(one.model_copy(update={"done": True}) if key_of(one.notice) == key else one for one in known)


def written(known: Iterable[Remembered]) -> str:
    """As the annotation has it: JSON, without AWS's prose. Empty where AWS has announced nothing that still holds."""
    alive = {event.key for event in events_of(tuple(known)) if event.status == "announced"}
    kept = tuple(
        one.model_copy(update={"notice": one.notice.model_copy(update={"text": ""})})
        for one in known
        if key_of(one.notice) in alive
    )
    return _MANY.dump_json(kept, exclude_defaults=True).decode() if kept else ""


def read(text: str) -> tuple[Remembered, ...]:
    """What `written` wrote. Whatever else stands there is no notice."""
    if not text:
        return ()
    try:
        return _MANY.validate_json(text)
    except ValidationError:
        return ()


def recalled(written_before: str, known: Sequence[Remembered]) -> tuple[Remembered, ...]:
    """The memory of a life that is begun anew: what its NodeClaim says, and what it was told since."""
    memory = read(written_before)
    for one in known:
        memory = noted(memory, (one.notice,), one.heard)
    return memory


def _id(notice: Notice) -> tuple[str, str]:
    return (notice.kind, notice.id)


def _is_news(notice: Notice, before: Notice) -> bool:
    if notice.at != before.at:
        return notice.at > before.at and notice.model_copy(update={"at": before.at}) != before
    return notice != before and before.status == "announced"


def _changed(before: Remembered, notice: Notice) -> Remembered:
    """Another time makes another event of it, of which nobody has said anything. One that only ends has no time."""
    if notice.status != "announced":
        starts = notice.starts or before.notice.starts
        return before.model_copy(update={"notice": notice.model_copy(update={"starts": starts})})
    if before.notice.status != "announced":
        return Remembered(notice=notice, heard=notice.at)
    if key_of(notice) == key_of(before.notice):
        return before.model_copy(update={"notice": notice})
    return Remembered(notice=notice, heard=before.heard, moved_from=before.notice.starts)


def _event(key: str, group: Sequence[Remembered]) -> Event:
    latest = max(group, key=lambda one: (one.notice.at, one.notice.status != "announced"))
    notice = latest.notice
    # What was before AWS took it back, or was over, is another time of the same.
    ended = max((one.notice.at for one in group if one.notice.status != "announced"), default=None)
    alive = [one for one in group if ended is None or one.notice.at > ended] or [latest]
    return Event(
        key=key,
        kind=notice.kind,
        reason=KARPENTERS_KINDS.get((notice.kind, notice.source), notice.kind),
        heard=min(one.heard for one in alive),
        starts=notice.starts,
        ends=notice.ends,
        code=notice.code or next((one.notice.code for one in alive if one.notice.code), ""),
        text=notice.text or next((one.notice.text for one in alive if one.notice.text), ""),
        status=notice.status,
        moved_from=next((one.moved_from for one in alive if one.moved_from), None),
        answer=next((one.answer for one in alive if one.answer), None),
        done=any(one.done for one in alive),
    )
