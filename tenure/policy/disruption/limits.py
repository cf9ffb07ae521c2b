"""How many nodes of each NodePool may be disrupted now, by reason: Karpenter's budgets and LifecyclePolicy limits.

`tenure/scheduling/disruption/` uses these limits. An invalid budget blocks its NodePool and is reported.

The module also computes when a limit rises without an event: a budget's window or a freeze ends, or a window opens.
`tenure/controller/disruption/controller.py` schedules the next pass for that time. NodePool workflows sleep until then
if no other change can raise a limit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from tenure.apis.durations import parse_duration, parse_duration_or_none
from tenure.apis.lifecyclepolicy_disruption import DisruptionFreeze, DisruptionRate, DisruptionRules, DisruptionWindow
from tenure.apis.nodepool import Budget
from tenure.model.base import Value
from tenure.model.disruption.decision import (
    METHODS,
    BudgetHeadroom,
    ConcurrentZoneLimit,
    DisruptionBudgets,
    PastDisruption,
)
from tenure.model.operator_requests import NO_INVALID_RULES, InvalidRules
from tenure.model.workflow_states import NodePoolCount
from tenure.policy.disruption.budgets import (
    AllowedDisruptions,
    PermitCandidate,
    check_schedule,
    decide_allowed_disruptions,
    is_closed,
    is_open,
    next_scheduled_time,
    parse_timestamp,
    read_count,
    share_of,
)

T = TypeVar("T")
UNREAD_RATE: Final = timedelta(days=7)


class NodeCounted(Value):
    """A node that budgets count: managed, initialized, its instance not terminating (reference 4.4)."""

    uid: str
    pool: str
    zone: str = ""
    consuming: bool = False
    unavailable: bool = False
    """Consuming only because it is NotReady or missing."""


@dataclass(frozen=True, slots=True)
class PoolDisruptionRules:
    name: str
    budgets: Sequence[Budget] = ()
    rules: DisruptionRules | None = None
    unread: InvalidRules = NO_INVALID_RULES


def decide_pool_budgets(
    pools: Iterable[PoolDisruptionRules], nodes: Iterable[NodeCounted], past: Iterable[PastDisruption], now: datetime
) -> DisruptionBudgets:
    """An invalid rule blocks only its own NodePool. `past` must cover the longest period of the rates."""
    everyone, history = tuple(nodes), tuple(past)
    evaluated = [_PoolLimits(one, everyone, history, now) for one in pools]
    return DisruptionBudgets(
        pools={one.pool.name: {method: one.headroom(method) for method in METHODS} for one in evaluated},
        zones={one.pool.name: zones for one in evaluated if (zones := one.zone_headroom())},
        zones_at_once={one.pool.name: rule for one in evaluated if (rule := one.zones_at_once())},
        cluster={one.pool.name: headroom for one in evaluated if (headroom := one.cluster_headroom())},
        youngest={one.pool.name: age for one in evaluated if (age := one.minimum_node_age())},
    )


def decide_limits(
    pool: PoolDisruptionRules,
    nodes: Iterable[NodeCounted],
    past: Iterable[PastDisruption],
    *,
    reason: str,
    now: datetime,
) -> AllowedDisruptions:
    """All limits of one NodePool for one reason. `Expired` is subject to rules without reasons."""
    found = _PoolLimits(pool, tuple(nodes), tuple(past), now)
    headroom = found.headroom(reason)
    return AllowedDisruptions(
        allowed=headroom.allowed,
        allowed_unavailable=headroom.allowed_unavailable,
        count=found.count_nodes(),
        why=headroom.why,
        zones=found.zone_headroom(),
        zones_at_once=found.zones_at_once(),
        cluster=found.cluster_headroom(),
        minimum_node_age=found.minimum_node_age(),
        fixed=found.is_fixed(reason),
    )


def longest_rate(rules: DisruptionRules | None, unread: InvalidRules = NO_INVALID_RULES) -> timedelta:
    """The longest period of the rates; zero without rates, and UNREAD_RATE if the rules are invalid."""
    if unread.disruption or (rules is not None and problems_of(rules)):
        return UNREAD_RATE
    if rules is None:
        return timedelta(0)
    return max((_parse_positive_duration(one.within) for one in rules.rates or ()), default=timedelta(0))


def problems_of(rules: DisruptionRules, field: str = "spec.disruption") -> tuple[str, ...]:
    """Problems that the CRD does not check: field, value and expected form."""
    return tuple(_find_problems(rules, field))


class _PoolLimits:
    """The limits of one NodePool. An invalid rule blocks all disruptions, and the other rules are not evaluated."""

    def __init__(
        self,
        pool: PoolDisruptionRules,
        everyone: Sequence[NodeCounted],
        history: Sequence[PastDisruption],
        now: datetime,
    ) -> None:
        self.pool, self.now = pool, now
        self._everyone = everyone
        self._nodes = [one for one in everyone if one.pool == pool.name]
        self._past = [one for one in history if one.pool == pool.name]
        self._problems = problems_of(pool.rules, "disruption") if pool.rules else ()
        self._rules = pool.rules if pool.rules and not self._problems else DisruptionRules()

    def headroom(self, method: str) -> BudgetHeadroom:
        if blocked_by := self.pool.unread.blocking_message(method) or next(iter(self._problems), ""):
            return BudgetHeadroom(allowed=0, why=blocked_by)
        base = decide_allowed_disruptions(self.pool.budgets, self.count_nodes(), reason=method, now=self.now)
        limits = [
            BudgetHeadroom(allowed=base.allowed, why=base.why, allowed_unavailable=base.allowed_unavailable),
            *self._active_freezes(method),
            *self._missed_windows(method),
        ]
        limits += self._rate_limits(method)
        least = min(one.allowed_for(unavailable=True) for one in limits)
        return min(limits, key=lambda one: one.allowed).model_copy(update={"allowed_unavailable": least})

    def is_fixed(self, method: str) -> bool:
        """No change of a node can allow a disruption for this reason."""
        if self._problems or self.pool.unread.blocking_message(method):
            return True
        is_restricted = any(True for _ in (*self._active_freezes(method), *self._missed_windows(method)))
        return is_restricted or is_closed(self.pool.budgets, reason=method, now=self.now)

    def zone_headroom(self) -> dict[str, BudgetHeadroom]:
        rule = self._rules.per_zone
        if rule is None or rule.nodes is None:
            return {}
        found = {}
        for zone in sorted({one.zone for one in self._nodes}):
            mine = [one for one in self._nodes if one.zone == zone]
            found[zone] = _compute_headroom(rule.nodes, mine, f"perZone.nodes {rule.nodes}")
        return found

    def zones_at_once(self) -> ConcurrentZoneLimit | None:
        rule = self._rules.per_zone
        if rule is None or rule.zones_at_once is None:
            return None
        begun = sorted({one.zone for one in self._nodes if one.consuming})
        return ConcurrentZoneLimit(max_zones=rule.zones_at_once, active_zones=tuple(begun))

    def cluster_headroom(self) -> BudgetHeadroom | None:
        limit = self._rules.cluster_nodes
        return _compute_headroom(limit, self._everyone, f"clusterNodes {limit}") if limit is not None else None

    def minimum_node_age(self) -> timedelta | None:
        return parse_duration(self._rules.minimum_node_age) if self._rules.minimum_node_age else None

    def count_nodes(self) -> NodePoolCount:
        return NodePoolCount(
            existing=tuple(one.uid for one in self._nodes),
            consuming=tuple(one.uid for one in self._nodes if one.consuming),
            unavailable=tuple(one.uid for one in self._nodes if one.unavailable),
        )

    def _active_freezes(self, method: str) -> Iterator[BudgetHeadroom]:
        for one in self._rules.freezes or ():
            start, end = _freeze_interval(one)
            if _applies_to(one.reasons, method) and start <= self.now < end:
                why = f": {one.why}" if one.why else ""
                yield BudgetHeadroom(allowed=0, why=f"frozen until {end.isoformat(timespec='minutes')}{why}")

    def _missed_windows(self, method: str) -> Iterator[BudgetHeadroom]:
        concerned = [one for one in self._rules.windows or () if _applies_to(one.reasons, method)]
        if not concerned or any(
            is_open(one.schedule, one.duration, self.now, one.time_zone or "") for one in concerned
        ):
            return
        openings = [next_scheduled_time(one.schedule, self.now, one.time_zone or "") for one in concerned]
        opening = min((one for one in openings if one is not None), default=None)
        when = f"the next opens at {opening.isoformat(timespec='minutes')}" if opening else "no window opens again"
        yield BudgetHeadroom(allowed=0, why=f"outside of its windows, {when}")

    def _rate_limits(self, method: str) -> Iterator[BudgetHeadroom]:
        yield from (self._rate_headroom(one) for one in self._rules.rates or () if _applies_to(one.reasons, method))

    def _rate_headroom(self, rate: DisruptionRate) -> BudgetHeadroom:
        span = _parse_positive_duration(rate.within)
        counted = [one.at for one in self._past if _applies_to(rate.reasons, one.reason) and self.now - one.at < span]
        limit = share_of(rate.nodes, len(self._nodes))
        message = f"rate {rate.nodes} of {len(self._nodes)} nodes within {rate.within}: {len(counted)} disrupted"
        freed = f", next disruption at {(min(counted) + span).isoformat(timespec='minutes')}" if counted else ""
        return BudgetHeadroom(
            allowed=max(0, limit - len(counted)), why=message + (freed if len(counted) >= limit else "")
        )


def _compute_headroom(nodes: str, among: Sequence[NodeCounted], written: str) -> BudgetHeadroom:
    limit, used = share_of(nodes, len(among)), sum(one.consuming for one in among)
    message = f"{written} of {len(among)} nodes allows {limit}, {used} in use (NotReady or terminating)"
    disrupted = used - sum(one.unavailable for one in among)
    return BudgetHeadroom(allowed=max(0, limit - used), why=message, allowed_unavailable=max(0, limit - disrupted))


def _applies_to(reasons: Sequence[str] | None, method: str) -> bool:
    return not reasons or method in reasons


def _find_problems(rules: DisruptionRules, field: str) -> Iterator[str]:
    if rules.minimum_node_age is not None:
        yield from _check_value(f"{field}.minimumNodeAge", _parse_positive_duration, rules.minimum_node_age)
    for number, window in enumerate(rules.windows or ()):
        yield from _check_value(f"{field}.windows[{number}]", _read_window, window)
    for number, freeze in enumerate(rules.freezes or ()):
        yield from _check_value(f"{field}.freezes[{number}]", _read_freeze, freeze)
    for number, rate in enumerate(rules.rates or ()):
        yield from _check_value(f"{field}.rates[{number}]", _read_rate, rate)
    if rules.per_zone is not None and rules.per_zone.nodes is not None:
        yield from _check_value(f"{field}.perZone.nodes", read_count, rules.per_zone.nodes)
    if rules.cluster_nodes is not None:
        yield from _check_value(f"{field}.clusterNodes", read_count, rules.cluster_nodes)


def _check_value(where: str, read: Callable[[T], object], value: T) -> Iterator[str]:
    try:
        read(value)
    except ValueError as error:
        yield f"{where}: {error}"


def _read_window(one: DisruptionWindow) -> None:
    _parse_positive_duration(one.duration)
    check_schedule(one.schedule, one.time_zone or "")


def _read_freeze(one: DisruptionFreeze) -> None:
    start, end = _freeze_interval(one)
    if end <= start:
        raise ValueError(f"end {one.end!r} is not after start {one.start!r}: write a later end")


def _read_rate(one: DisruptionRate) -> None:
    _parse_positive_duration(one.within)
    read_count(one.nodes)


def _parse_positive_duration(text: str) -> timedelta:
    found = parse_duration(text)
    if found is None or found <= timedelta(0):
        raise ValueError(f"{text!r}: invalid duration, expected e.g. 30m or 4h")
    return found


def _freeze_interval(one: DisruptionFreeze) -> tuple[datetime, datetime]:
    zone = one.time_zone or ""
    return parse_timestamp(one.start, zone), parse_timestamp(one.end, zone)


def next_budget_opening(pools: Iterable[PoolDisruptionRules], now: datetime) -> datetime | None:
    """When the first limit rises. Invalid budgets and rules are ignored; they block their NodePool anyway."""
    return min((one for pool in pools for one in _opening_times(pool, now) if one > now), default=None)


def next_pool_opening(
    pool: PoolDisruptionRules, past: Iterable[PastDisruption], candidates: Collection[PermitCandidate], now: datetime
) -> datetime | None:
    """`next_budget_opening` for one NodePool with known candidates: also when a rate allows the next disruption, or a
    candidate reaches the minimum age."""
    known = [
        next_budget_opening([pool], now),
        *_rate_release_times(pool, [one.at for one in past if one.pool == pool.name]),
    ]
    minimum_node_age = parse_duration_or_none(pool.rules.minimum_node_age) if pool.rules else None
    known += [one.created + minimum_node_age for one in candidates if one.created and minimum_node_age]
    return min((one for one in known if one is not None and one > now), default=None)


def _rate_release_times(pool: PoolDisruptionRules, went: list[datetime]) -> Iterator[datetime]:
    for rate in (pool.rules.rates or ()) if pool.rules else ():
        within = parse_duration_or_none(rate.within)
        yield from (at + within for at in went if within)


def _opening_times(pool: PoolDisruptionRules, now: datetime) -> Iterator[datetime]:
    for budget in pool.budgets:
        yield from _try_read(partial(_budget_window_end, budget, now))
    rules = pool.rules
    for window in (rules.windows or ()) if rules else ():
        yield from _try_read(partial(_next_window_opening, window, now))
    for freeze in (rules.freezes or ()) if rules else ():
        yield from _try_read(partial(_freeze_end, freeze, now))


def _try_read(read_value: Callable[[], T | None]) -> Iterator[T]:
    try:
        found = read_value()
    except ValueError:
        return
    if found is not None:
        yield found


def _budget_window_end(budget: Budget, now: datetime) -> datetime | None:
    duration = parse_duration(budget.duration or "0s")
    if not budget.schedule or duration is None:
        return None
    fired_at = next_scheduled_time(budget.schedule, now - duration)
    return fired_at + duration if fired_at is not None and fired_at <= now else None


def _next_window_opening(window: DisruptionWindow, now: datetime) -> datetime | None:
    zone = window.time_zone or ""
    return (
        None
        if is_open(window.schedule, window.duration, now, zone)
        else next_scheduled_time(window.schedule, now, zone)
    )


def _freeze_end(freeze: DisruptionFreeze, now: datetime) -> datetime | None:
    zone = freeze.time_zone or ""
    return parse_timestamp(freeze.end, zone) if parse_timestamp(freeze.start, zone) <= now else None
