"""Disruption budgets, and the schedules of budgets and other rules.

Karpenter's rules (reference 4.4): percentages round up, so a budget of 10 % allows one node of a small NodePool. Nodes
that are NotReady or being deleted consume the budget. The strictest active budget applies. An invalid budget allows no
disruption.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from tenure.apis.cron import ScheduleError, next_time
from tenure.apis.durations import parse_duration, quote
from tenure.apis.labels import UNHEALTHY
from tenure.apis.nodepool import Budget
from tenure.model.base import Message
from tenure.model.disruption.decision import BudgetHeadroom, ConcurrentZoneLimit
from tenure.model.workflow_states import NodePoolCount

_FORM: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
_COUNT: Final = re.compile(r"-?[0-9]{1,18}%?")
"""Numbers of 64 bits, as in Karpenter."""


class TimeZoneError(ValueError):
    """Unknown time zone; the message has the expected form."""


class TimestampError(ValueError):
    """Invalid time; the message has the expected form."""


class CountError(ValueError):
    """Invalid number or share of nodes; the message has the expected form."""


def is_open(schedule: str, duration: str, now: datetime, zone: str = "") -> bool:
    """Whether at most `duration` has passed since the schedule last fired. Raises ValueError."""
    window_length = parse_duration(duration) or timedelta(0)
    fired_at = next_scheduled_time(schedule, now - window_length, zone)
    return fired_at is not None and fired_at <= now


def next_scheduled_time(schedule: str, after: datetime, zone: str = "") -> datetime | None:
    """When the schedule fires next, in the time zone `zone`; None if never. Raises ScheduleError and TimeZoneError."""
    try:
        return next_time(schedule, after.astimezone(zone_of(zone)))
    except ScheduleError as error:
        raise ScheduleError(f"schedule {error}") from error


def check_schedule(schedule: str, zone: str = "") -> None:
    """Raises TimeZoneError, and ScheduleError for an invalid schedule and for one that never fires."""
    if next_scheduled_time(schedule, datetime(2026, 1, 1, tzinfo=UTC), zone) is None:
        raise ScheduleError(f"schedule {quote(schedule)} never fires")


def zone_of(name: str) -> tzinfo:
    """UTC for an empty name. Raises TimeZoneError."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise TimeZoneError(
            f"timeZone {quote(name)}: unknown, expected a name of the IANA database such as Europe/Berlin, or leave "
            "it out for UTC"
        ) from error


def parse_timestamp(text: str, zone: str = "") -> datetime:
    """A date, a local time in the time zone `zone`, or a time with an offset. Raises TimestampError and
    TimeZoneError."""
    try:
        if not _FORM.fullmatch(text):
            raise ValueError("unknown form")
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise TimestampError(
            f"{quote(text)}: invalid time, expected 2026-12-20, 2026-12-20T18:00 or 2026-12-20T18:00:00Z"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=zone_of(zone))


class PermitCandidate(Message):
    zone: str = ""
    initialized: bool = True
    """A node that was never initialized neither needs nor uses a budget (reference 1.15, section 3.5)."""
    created: datetime | None = None
    paused: str = ""


class AllowedDisruptions(Message):
    allowed: int
    count: NodePoolCount = NodePoolCount()
    read: bool = True
    """False if the NodePool could not be read; `count` is empty then."""
    why: str = ""
    unreadable: bool = False
    """A budget is invalid; `why` names it and the remedy."""
    zones: dict[str, BudgetHeadroom] = {}
    """Headroom by zone; a zone without an entry is not limited."""
    zones_at_once: ConcurrentZoneLimit | None = None
    cluster: BudgetHeadroom | None = None
    minimum_node_age: timedelta | None = None
    allowed_unavailable: int | None = None
    """As in BudgetHeadroom."""
    fixed: bool = False
    """Only time or a change of the spec can allow a disruption, not a change of a node."""
    opens: datetime | None = None
    candidates: dict[str, PermitCandidate] = {}


def decide_allowed_disruptions(
    budgets: Sequence[Budget], count: NodePoolCount, *, reason: str, now: datetime
) -> AllowedDisruptions:
    """The strictest active budget for the reason, minus consumed disruptions; no limit without an active budget."""
    limits: list[tuple[int, str]] = []
    for budget in budgets:
        try:
            limit, active = share_of(budget.nodes, count.total), is_active(budget, now)
            if active and _covers_reason(budget, reason):
                limits.append((limit, budget.nodes))
        except ValueError as error:
            why = f"budget {budget.nodes!r} cannot be read: {error}"
            return AllowedDisruptions(allowed=0, count=count, why=why, unreadable=True)
    if not limits:
        return AllowedDisruptions(allowed=count.total, count=count, why="no active budget limits this reason")
    limit, written = min(limits)
    disrupted = len(count.consuming) - len(count.unavailable)
    used, states = len(count.consuming), "NotReady or terminating"
    if reason == UNHEALTHY:
        # NotReady nodes do not prevent their own repair (reference 1.15, section 3.5).
        used, states = disrupted, "terminating"
    message = f"budget {written} of {count.total} nodes allows {limit}, {used} in use ({states})"
    return AllowedDisruptions(
        allowed=max(0, limit - used), allowed_unavailable=max(0, limit - disrupted), count=count, why=message
    )


def is_closed(budgets: Sequence[Budget], *, reason: str, now: datetime) -> bool:
    """Whether an active budget is `0` or `0%`, or one is invalid: no disruption is allowed at any number of nodes."""
    try:
        return any(
            _covers_reason(one, reason) and share_of(one.nodes, 1) <= 0 and is_active(one, now) for one in budgets
        )
    except ValueError:
        return True


def _covers_reason(budget: Budget, reason: str) -> bool:
    """An empty list covers no reason, as in Karpenter (`GetAllowedDisruptionsByReason` in pkg/apis/v1/nodepool.go)."""
    return budget.reasons is None or reason in budget.reasons


def share_of(text: str, total: int) -> int:
    """A number, or a percentage of `total`, rounded up: `10%` of 3 nodes is 1. Raises CountError with the expected
    form."""
    if not _COUNT.fullmatch(text):
        raise CountError(f"{quote(text)}: invalid number of nodes, expected e.g. '5' or '10%'")
    return math.ceil(int(text[:-1]) * total / 100) if text.endswith("%") else int(text)


def read_count(text: str) -> int:
    """The number of nodes for a total of 100. Raises CountError with the expected form."""
    return share_of(text, 100)


def is_active(budget: Budget, now: datetime) -> bool:
    """Without a schedule always; otherwise for `duration` after the schedule fires, in UTC. Raises ValueError."""
    return not budget.schedule or is_open(budget.schedule, budget.duration or "0s", now)
