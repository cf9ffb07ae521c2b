"""When a node was away: NotReady, or under a taint that will pass. A record that its NodeClaim carries.

The NodeClaim's workflow keeps it and writes it down as an annotation; planning reads it there, so that it outlives the
watch, the worker and Temporal's store. `scheduling/grace.py` decides by it whose room still counts.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from model.base import Value

MOST: Final = 40
"""Stretches that are kept: the latest. More would fill an annotation that nobody reads."""
KEPT_FOR: Final = timedelta(days=1)
_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"


class Absence(Value):
    """One stretch; `until` is None while it lasts."""

    since: datetime
    until: datetime | None = None


def begun(record: Sequence[Absence], since: datetime) -> tuple[Absence, ...]:
    """The record with a stretch that began then; as it is where one lasts already."""
    if record and record[-1].until is None:
        return tuple(record)
    last = record[-1].until if record else None
    return (*record, Absence(since=max(since, last) if last else since))[-MOST:]


def ended(record: Sequence[Absence], until: datetime) -> tuple[Absence, ...]:
    """The record with its last stretch at an end; what is a day old is forgotten."""
    if record and record[-1].until is None:
        record = (*record[:-1], Absence(since=record[-1].since, until=max(until, record[-1].since)))
    return tuple(one for one in record if one.until is None or until - one.until < KEPT_FOR)


def lasting(record: Sequence[Absence]) -> datetime | None:
    """Since when the last stretch lasts; None when it is over."""
    return record[-1].since if record and record[-1].until is None else None


def merged(known: Iterable[Absence], told: Sequence[Absence]) -> tuple[Absence, ...]:
    """What is told, after what is known from before it: a workflow that was rebuilt does not know the beginning."""
    first = min((one.since for one in told), default=None)
    older = [one for one in known if first is None or one.since < first]
    closed = [one if one.until else Absence(since=one.since, until=first) for one in older] if first else older
    return (*closed, *told)[-MOST:]


def written(record: Iterable[Absence]) -> str:
    """As the annotation has it: `since/until`, separated by spaces, in whole seconds; no `until` while it lasts."""
    return " ".join(f"{_stamp(one.since)}/{_stamp(one.until) if one.until else ''}" for one in record)


def read(text: str) -> tuple[Absence, ...]:
    """What `written` wrote. Whatever else stands there is nobody's absence."""
    found = (_read(one) for one in text.split())
    return tuple(one for one in found if one is not None)


def _read(text: str) -> Absence | None:
    since, _, until = text.partition("/")
    try:
        return Absence(since=_moment(since), until=_moment(until) if until else None)
    except ValueError:
        return None


def _moment(text: str) -> datetime:
    return datetime.strptime(text, _FORM).replace(tzinfo=UTC)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
