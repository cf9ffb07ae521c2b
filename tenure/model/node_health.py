"""The unhealthy conditions of a node that repair counts, and the intervals in which the node was NotReady.

The workflow writes the intervals to an annotation of the NodeClaim, where planning reads them. They therefore survive
the loss of the watch, the worker and Temporal's database.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol

from pydantic import AwareDatetime, ValidationError

from tenure.model.base import Message

RepairStep = Literal["reboot", "replace"]
RepairMode = Literal["legacy", "replace", "reboot"]
"""`legacy`: as in Karpenter 1.14, which LEGACY_NODE_REPAIR selects. `reboot`: Karpenter's rules may reboot nodes."""


class UnhealthyCondition(Message):
    type: str
    status: str
    reason: str = ""
    since: datetime


class ConditionInterval(Message):
    type: str
    status: str
    reason: str = ""
    since: datetime
    until: datetime | None = None


class HasStatus(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...


class RepairDue(Message):
    """A repair that waits for a disruption command. It is an annotation of the NodeClaim, where planning reads it."""

    condition: str
    order_at: AwareDatetime
    """Nodes are repaired in this order, earliest first."""
    grace: timedelta | None = None
    """How long pods are evicted before they are deleted; None without a bound."""
    conditions: tuple[tuple[str, str], ...]
    """Type and status of every condition that counts as unhealthy."""
    max_unhealthy: str

    def format(self) -> str:
        return self.model_dump_json(exclude_none=True)

    @staticmethod
    def parse(text: str) -> "RepairDue | None":
        """None for an empty or invalid text."""
        try:
            return RepairDue.model_validate_json(text) if text else None
        except ValidationError:
            return None

    def counts(self, conditions: Iterable[HasStatus]) -> bool:
        """Whether one of these conditions of the Node is unhealthy."""
        return any((one.type, one.status) in self.conditions for one in conditions)


class Reboot(Message):
    """A reboot from its decision until the node has recovered or the reboot has failed."""

    requested_at: datetime
    condition: str
    rung: int = 0
    boot_id: str = ""
    """Before the reboot."""
    grace: timedelta | None = None
    """How long pods are evicted before the reboot: zero without a drain, None without a bound."""
    begun: bool = False
    """The Node has the taint. Without it, the first step has not succeeded."""
    drained: bool = False
    issued: bool = False
    observed: bool = False
    """Another boot ID was reported."""

    @property
    def drain_until(self) -> datetime | None:
        """At least MIN_REBOOT_DRAIN after the decision; None without a bound (reference 1.15, section 3.7)."""
        return None if self.grace is None else self.requested_at + max(self.grace, MIN_REBOOT_DRAIN)


MIN_REBOOT_DRAIN: Final = timedelta(seconds=5)


class Health(Message):
    mode: RepairMode = "legacy"
    """Of the last unhealthy condition."""
    intervals: tuple[ConditionInterval, ...] = ()
    """Oldest first. Ended intervals are kept only while a rule counts them."""
    steps_taken: int = 0
    condition: str = ""
    step_at: datetime | None = None
    step_failed: bool = False
    boot_id: str = ""
    recovered_at: datetime | None = None
    blocked_until: datetime | None = None
    blocked_by: str = ""
    requested: RepairDue | None = None
    """The repair in the annotation of the NodeClaim."""
    reboot: Reboot | None = None
    """The reboot in progress."""


class RepairRequest(Message):
    """One step of a repair. `conditions`: type and status of every condition that counts as unhealthy."""

    name: str
    uid: str
    pool: str = ""
    """Empty: a standalone NodeClaim, for which `max_unhealthy` counts the whole cluster."""
    node_name: str
    provider_id: str
    step: RepairStep | Literal["withdraw", "begin"]
    """`begin`: taint the node, which is drained and rebooted next. `withdraw`: the repair is not due any more."""
    step_index: int = 0
    """Index of the step in the repair rule's steps."""
    condition: str
    conditions: tuple[tuple[str, str], ...]
    max_unhealthy: str
    after_reboot: bool = False
    """A reboot did not help: a NotReady Node then counts as unhealthy regardless of `conditions`."""
    graceful_for: timedelta | None = None
    """How long pods are evicted while the kubelet responds; None: they are deleted immediately."""
    mode: RepairMode = "legacy"
    due: RepairDue | None = None
    """For `replace`, unless the mode is `legacy`: the repair that a disruption command carries out."""
    reboot: Reboot | None = None
    """For `reboot`: the reboot that begins or is in progress."""


class RebootEnd(Message):
    """The end of a reboot. `cancelled`: before the instance was rebooted."""

    repair: RepairRequest
    outcome: Literal["succeeded", "failed", "cancelled"]
    why: str = ""


class RepairResult(Message):
    """`requested`: a disruption command replaces the node. `held`: too many nodes are unhealthy. `not now`: the Node is
    healthy, or may not be repaired. `gone`: no such NodeClaim or instance."""

    outcome: Literal["done", "requested", "held", "not now", "gone"]
    why: str = ""
    boot_id: str = ""
    """Of the live Node, when a reboot begins."""


MAX_INTERVALS: Final = 40
"""The latest intervals are kept. More would only fill the annotation."""
RETENTION: Final = timedelta(days=1)
_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"


class NotReadyInterval(Message):
    """`until` is None while the Node is NotReady."""

    since: datetime
    until: datetime | None = None


def begin_interval(record: Sequence[NotReadyInterval], since: datetime) -> tuple[NotReadyInterval, ...]:
    """The record with a new interval from `since`; unchanged if the last interval is open."""
    if record and record[-1].until is None:
        return tuple(record)
    last = record[-1].until if record else None
    return (*record, NotReadyInterval(since=max(since, last) if last else since))[-MAX_INTERVALS:]


def end_interval(record: Sequence[NotReadyInterval], until: datetime) -> tuple[NotReadyInterval, ...]:
    """The record with its last interval closed, without intervals that ended more than RETENTION ago."""
    if record and record[-1].until is None:
        record = (*record[:-1], NotReadyInterval(since=record[-1].since, until=max(until, record[-1].since)))
    return tuple(one for one in record if one.until is None or until - one.until < RETENTION)


def ongoing_since(record: Sequence[NotReadyInterval]) -> datetime | None:
    return record[-1].since if record and record[-1].until is None else None


def merge_intervals(
    known: Iterable[NotReadyInterval], reported: Sequence[NotReadyInterval]
) -> tuple[NotReadyInterval, ...]:
    """The reported intervals, and the recorded ones that started earlier: a rebuilt workflow does not know those."""
    first = min((one.since for one in reported), default=None)
    older = [one for one in known if first is None or one.since < first]
    closed = [one if one.until else NotReadyInterval(since=one.since, until=first) for one in older] if first else older
    return (*closed, *reported)[-MAX_INTERVALS:]


def format_intervals(record: Iterable[NotReadyInterval]) -> str:
    """The annotation's value: `since/until` in whole seconds, separated by spaces; `since/` for an open interval."""
    return " ".join(
        f"{_format_timestamp(one.since)}/{_format_timestamp(one.until) if one.until else ''}" for one in record
    )


def parse_intervals(text: str) -> tuple[NotReadyInterval, ...]:
    """Parse the result of `format_intervals`. Any other text yields no interval."""
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
