"""AWS's notices as one node remembers them: repeats, changes, withdrawals, and which of them tell of the same event.

Pure. The same maintenance comes from the queue and from the instance's status, with different ids and one start. What
one of them says first of another start holds for both.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tenure.model.interruption.notices import KARPENTERS_KINDS, Notice
from tenure.model.interruption.records import Answer, Event, Remembered

MOST: Final = 20
"""Notices that a node remembers; what AWS took back is forgotten first."""
_MANY: Final = TypeAdapter(tuple[Remembered, ...])


def noted(known: Sequence[Remembered], notices: Iterable[Notice], now: datetime) -> tuple[Remembered, ...]:
    """The memory after some notices. Repeats, and what is older than what is known, change nothing.

    AWS moves an event, and one source says so before the other: of the two the later word counts, by when AWS said it
    or EC2's status had it. A source that repeats what it had said before that is slow, however late it does: only
    another word of its own is later."""
    found = {_id(one.notice): one for one in known}
    for notice in notices:
        before = found.get(_id(notice))
        if before is None:
            found[_id(notice)] = _late(found.values(), notice, now) or Remembered(notice=notice, heard=now)
        elif _is_news(notice, before.own or before.notice):
            after = _changed(before, notice, now)
            found |= _moved(found.values(), before, after) | {_id(notice): after}
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
        one.model_copy(update={"notice": _bare(one.notice), "own": one.own and _bare(one.own)})
        for one in known
        if key_of(one.notice) in alive
    )
    return _MANY.dump_json(kept, exclude_defaults=True).decode() if kept else ""


def _bare(notice: Notice) -> Notice:
    return notice.model_copy(update={"text": ""})


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
        memory = noted(memory, (one.notice,), one.moved or one.heard)
    told = {(_id(one.notice), key_of(one.notice)): one for one in known}
    return tuple(_as_told(one, told.get((_id(one.notice), key_of(one.notice)))) for one in memory)


def _as_told(one: Remembered, since: Remembered | None) -> Remembered:
    """With what is known of its move."""
    if since is None:
        return one
    moved = {"moved_from": one.moved_from or since.moved_from, "moved": one.moved or since.moved}
    return one.model_copy(update={"own": one.own or since.own, **moved})


def _id(notice: Notice) -> tuple[str, str]:
    return (notice.kind, notice.id)


def _moved(known: Iterable[Remembered], before: Remembered, after: Remembered) -> dict[tuple[str, str], Remembered]:
    """What the other source says of an event that one of them moves. Where it says two things of that moment nobody
    knows which of them is meant, and both stay: too early is better than too late."""
    if after.notice.status != "announced" or key_of(after.notice) == key_of(before.notice):
        return {}
    told = [
        one
        for one in known
        if one.notice.source != after.notice.source
        and one.notice.status == "announced"
        and key_of(one.notice) == key_of(before.notice)
    ]
    if len(told) != 1 or told[0].notice.at > after.notice.at:
        return {}
    return {_id(told[0].notice): _following(told[0], after)}


def _following(one: Remembered, mover: Remembered) -> Remembered:
    """As `mover` has it. When its own source said something last is kept."""
    to = {"starts": mover.notice.starts, "ends": mover.notice.ends, "at": mover.notice.at}
    return Remembered(
        notice=one.notice.model_copy(update=to),
        heard=one.heard,
        moved_from=mover.moved_from,
        moved=mover.moved,
        own=one.own or one.notice,
    )


def _late(known: Iterable[Remembered], notice: Notice, now: datetime) -> Remembered | None:
    """A first word that is older than the other source's that its event was moved; None for any other."""
    told = tuple(known)
    mine = {key_of(one.notice) for one in told if one.notice.source == notice.source}
    for one in told:
        word = one.notice
        if one.moved_from is None or one.own or word.source == notice.source or key_of(word) in mine:
            continue
        before = key_of(word.model_copy(update={"starts": one.moved_from}))
        if word.status == notice.status == "announced" and before == key_of(notice) and notice.at <= word.at:
            return _following(Remembered(notice=notice, heard=now), one)
    return None


def _is_news(notice: Notice, before: Notice) -> bool:
    if notice.at != before.at:
        return notice.at > before.at and notice.model_copy(update={"at": before.at}) != before
    return notice != before and before.status == "announced"


def _changed(before: Remembered, notice: Notice, now: datetime) -> Remembered:
    """Another time makes another event of it, of which nobody has said anything. One that only ends has no time."""
    if before.own is not None and key_of(notice) != key_of(before.notice):
        return _own(before, before.own, notice, now)
    before = before.model_copy(update={"own": None})
    if notice.status != "announced":
        starts = notice.starts or before.notice.starts
        return before.model_copy(update={"notice": notice.model_copy(update={"starts": starts})})
    if before.notice.status != "announced":
        return Remembered(notice=notice, heard=notice.at)
    if key_of(notice) == key_of(before.notice):
        return before.model_copy(update={"notice": notice})
    return Remembered(notice=notice, heard=before.heard, moved_from=before.notice.starts, moved=now)


def _own(before: Remembered, own: Notice, notice: Notice, now: datetime) -> Remembered:
    """A further word of a source that has not said yet that the event was moved. What it ends is what it knew of."""
    if notice.status != "announced":
        return Remembered(notice=notice.model_copy(update={"starts": notice.starts or own.starts}), heard=before.heard)
    if key_of(notice) == key_of(own) or notice.at < before.notice.at:
        return before.model_copy(update={"own": notice})
    return Remembered(notice=notice, heard=before.heard, moved_from=before.notice.starts, moved=now)


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
        moved=max((one.moved for one in alive if one.moved), default=None),
        answer=next((one.answer for one in alive if one.answer), None),
        done=any(one.done for one in alive),
    )
