"""A node's health as repair counts it, and the intervals in which it was NotReady.

The workflow writes the intervals to an annotation of the NodeClaim, where planning reads them, so that they outlive
the watch, the worker and Temporal's store.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from tenure.model.base import Message, Value

RepairStep = Literal["reboot", "replace"]


class UnhealthyCondition(Message):
    type: str
    status: str
    since: datetime


class ConditionInterval(Message):
    type: str
    status: str
    since: datetime
    until: datetime | None = None


class Health(Message):
    intervals: tuple[ConditionInterval, ...] = ()
    """Oldest first. Past intervals are kept only if rules count them, and only for as long."""
    steps_taken: int = 0
    condition: str = ""
    step_at: datetime | None = None
    step_failed: bool = False
    boot_id: str = ""
    recovered_at: datetime | None = None
    blocked_until: datetime | None = None
    blocked_by: str = ""


class RepairRequest(Message):
    """A request to take one step. `conditions` are type and status of all that counts as unhealthy."""

    name: str
    uid: str
    pool: str = ""
    """Empty: a standalone NodeClaim, for which the whole cluster is counted."""
    node_name: str
    provider_id: str
    step: RepairStep
    step_index: int = 0
    """The how manieth step of the ladder it is, from 0."""
    condition: str
    conditions: tuple[tuple[str, str], ...]
    max_unhealthy: str
    after_reboot: bool = False
    """A reboot did not help: a Node that is not Ready is not well, whatever counts otherwise."""
    graceful_for: timedelta | None = None
    """How long pods are evicted while the node answers; None: they are deleted at once."""


class RepairResult(Message):
    """`held`: the breaker is open. `not now`: the Node is well. `gone`: there is no such NodeClaim or instance."""

    outcome: Literal["done", "held", "not now", "gone"]
    why: str = ""


MAX_INTERVALS: Final = 40
"""Intervals kept, the latest first. More would fill the annotation without use."""
RETENTION: Final = timedelta(days=1)
_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"


class NotReadyInterval(Value):
    """One stretch; `until` is None while it lasts."""

    since: datetime
    until: datetime | None = None


def begin_interval(record: Sequence[NotReadyInterval], since: datetime) -> tuple[NotReadyInterval, ...]:
    """The record with an interval that starts then; unchanged if one is open."""
    if record and record[-1].until is None:
        return tuple(record)
    last = record[-1].until if record else None
    return (*record, NotReadyInterval(since=max(since, last) if last else since))[-MAX_INTERVALS:]


def end_interval(record: Sequence[NotReadyInterval], until: datetime) -> tuple[NotReadyInterval, ...]:
    """The record with its last interval closed; intervals over a day old are dropped."""
    if record and record[-1].until is None:
        record = (*record[:-1], NotReadyInterval(since=record[-1].since, until=max(until, record[-1].since)))
    return tuple(one for one in record if one.until is None or until - one.until < RETENTION)


def ongoing_since(record: Sequence[NotReadyInterval]) -> datetime | None:
    return record[-1].since if record and record[-1].until is None else None


def merge_intervals(
    known: Iterable[NotReadyInterval], reported: Sequence[NotReadyInterval]
) -> tuple[NotReadyInterval, ...]:
    """The reported intervals merged with the recorded ones: a rebuilt workflow does not know the start."""
    first = min((one.since for one in reported), default=None)
    older = [one for one in known if first is None or one.since < first]
    closed = [one if one.until else NotReadyInterval(since=one.since, until=first) for one in older] if first else older
    return (*closed, *reported)[-MAX_INTERVALS:]


def format_intervals(record: Iterable[NotReadyInterval]) -> str:
    """As the annotation has it: `since/until`, separated by spaces, in whole seconds; no `until` while it lasts."""
    return " ".join(
        f"{_format_timestamp(one.since)}/{_format_timestamp(one.until) if one.until else ''}" for one in record
    )


def parse_intervals(text: str) -> tuple[NotReadyInterval, ...]:
    """Parse the form of `format_intervals`. Any other text yields no interval."""
    found = (_parse_interval(one) for one in text.split())
    return tuple(one for one in found if one is not None)


def _parse_interval(text: str) -> NotReadyInterval | None:
    since, _, until = text.partition("/")
    try:
        return NotReadyInterval(since=_parse_timestamp(since), until=_parse_timestamp(until) if until else None)
    except ValueError:
        return None


def _parse_timestamp(text: str) -> datetime:
    return datetime.strptime(text, _FORM).replace(tzinfo=UTC)


def _format_timestamp(timestamp: datetime) -> str:
    return timestamp.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
