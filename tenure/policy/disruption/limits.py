"""How many nodes of each NodePool may go now, for each reason: Karpenter's budgets, and what LifecyclePolicies narrow.

`scheduling/disruption/` spends what is decided here. What cannot be read closes its NodePool, and is named.

When time alone lets more nodes go than now: a budget's window or a freeze ends, a window opens.

`tenure/controller/disruption/controller.py` asks where budgets keep nodes that could go, so that the next pass comes
then and not before;
NodePool workflows sleep until then while nothing else can let nodes go.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from tenure.apis.durations import parse_duration
from tenure.apis.lifecyclepolicy_disruption import DisruptionFreeze, DisruptionRate, DisruptionRules, DisruptionWindow
from tenure.apis.nodepool import Budget
from tenure.model.base import Value
from tenure.model.disruption.planning import METHODS, Allowances, Disrupted, Room, ZonesAtOnce
from tenure.model.operator_requests import ALL_READ, Unread
from tenure.model.workflow_states import PoolCount
from tenure.policy.disruption.budgets import (
    Allowance,
    Asking,
    decide_allowance,
    is_closed,
    is_open,
    moment,
    next_hit,
    read_count,
    share_of,
)

T = TypeVar("T")
UNREAD_RATE: Final = timedelta(days=7)
_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


class NodeCounted(Value):
    """A node as budgets count it: managed, initialized, its instance not terminating (reference 4.4)."""

    uid: str
    pool: str
    zone: str = ""
    consuming: bool = False
    """NotReady, or on its way out."""


@dataclass(frozen=True, slots=True)
class PoolWishes:
    """What a NodePool says, and what LifecyclePolicies say of it."""

    name: str
    budgets: Sequence[Budget] = ()
    rules: DisruptionRules | None = None
    unread: Unread = ALL_READ


def decide_allowances(
    pools: Iterable[PoolWishes], nodes: Iterable[NodeCounted], past: Iterable[Disrupted], now: datetime
) -> Allowances:
    """Every NodePool for itself: one that cannot be read closes no other. `past` reaches back as far as rates do."""
    everyone, history = tuple(nodes), tuple(past)
    answers = [_Pool(one, everyone, history, now) for one in pools]
    return Allowances(
        pools={one.wishes.name: {method: one.room(method) for method in METHODS} for one in answers},
        zones={one.wishes.name: zones for one in answers if (zones := one.zones())},
        zones_at_once={one.wishes.name: rule for one in answers if (rule := one.zones_at_once())},
        cluster={one.wishes.name: room for one in answers if (room := one.cluster())},
        youngest={one.wishes.name: age for one in answers if (age := one.youngest())},
        errors=tuple(error for one in answers for error in one.errors()),
    )


def decide_limits(
    pool: PoolWishes, nodes: Iterable[NodeCounted], past: Iterable[Disrupted], *, reason: str, now: datetime
) -> Allowance:
    """All that limits one NodePool for one reason, `Expired` included: it heeds rules that name no reasons."""
    found = _Pool(pool, tuple(nodes), tuple(past), now)
    room = found.room(reason)
    return Allowance(
        allowed=room.allowed,
        count=found.count(),
        why=room.why,
        zones=found.zones(),
        zones_at_once=found.zones_at_once(),
        cluster=found.cluster(),
        youngest=found.youngest(),
        fixed=found.is_fixed(reason),
    )


def longest_rate(rules: DisruptionRules | None, unread: Unread = ALL_READ) -> timedelta:
    """How far back rates look; nothing where there are none. Of those that cannot be read a week is remembered."""
    if unread.disruption or (rules is not None and problems_of(rules)):
        return UNREAD_RATE
    if rules is None:
        return timedelta(0)
    return max((_duration(one.within) for one in rules.rates or ()), default=timedelta(0))


def problems_of(rules: DisruptionRules, field: str = "spec.disruption") -> tuple[str, ...]:
    """What is wrong beyond what the CRD checks: field, value, and what to write instead."""
    return tuple(_problems(rules, field))


class _Pool:
    """One NodePool in one decision. With a rule that cannot be read it is closed, and its other rules are void."""

    def __init__(
        self, wishes: PoolWishes, everyone: Sequence[NodeCounted], history: Sequence[Disrupted], now: datetime
    ) -> None:
        self.wishes, self.now = wishes, now
        self._everyone = everyone
        self._nodes = [one for one in everyone if one.pool == wishes.name]
        self._past = [one for one in history if one.pool == wishes.name]
        self._wrong = problems_of(wishes.rules, "disruption") if wishes.rules else ()
        self._rules = wishes.rules if wishes.rules and not self._wrong else DisruptionRules()

    def room(self, method: str) -> Room:
        """The strictest of all that is said."""
        if held := self.wishes.unread.words(method) or next(iter(self._wrong), ""):
            return Room(allowed=0, why=held)
        base = decide_allowance(self.wishes.budgets, self.count(), reason=method, now=self.now)
        said = [Room(allowed=base.allowed, why=base.why), *self._freezes(method), *self._windows(method)]
        said += self._rates(method)
        return min(said, key=lambda one: one.allowed)

    def is_fixed(self, method: str) -> bool:
        """No node's coming, going or recovery lets any go."""
        if self._wrong or self.wishes.unread.words(method):
            return True
        said = any(True for _ in (*self._freezes(method), *self._windows(method)))
        return said or is_closed(self.wishes.budgets, reason=method, now=self.now)

    def zones(self) -> dict[str, Room]:
        rule = self._rules.per_zone
        if rule is None or rule.nodes is None:
            return {}
        found = {}
        for zone in sorted({one.zone for one in self._nodes}):
            mine = [one for one in self._nodes if one.zone == zone]
            found[zone] = _left(rule.nodes, mine, f"perZone.nodes {rule.nodes}")
        return found

    def zones_at_once(self) -> ZonesAtOnce | None:
        rule = self._rules.per_zone
        if rule is None or rule.zones_at_once is None:
            return None
        begun = sorted({one.zone for one in self._nodes if one.consuming})
        return ZonesAtOnce(most=rule.zones_at_once, begun=tuple(begun))

    def cluster(self) -> Room | None:
        wanted = self._rules.cluster_nodes
        return _left(wanted, self._everyone, f"clusterNodes {wanted}") if wanted is not None else None

    def youngest(self) -> timedelta | None:
        return parse_duration(self._rules.minimum_node_age) if self._rules.minimum_node_age else None

    def errors(self) -> Iterator[str]:
        name = self.wishes.name
        unread = self.wishes.unread
        yield from (f"NodePool {name}: {one}" for one in (unread.disruption, unread.rollout, *self._wrong) if one)
        answer = decide_allowance(self.wishes.budgets, self.count(), reason=METHODS[0], now=self.now)
        if answer.unreadable:
            yield f"NodePool {name}: spec.disruption.budgets: {answer.why}"

    def count(self) -> PoolCount:
        return PoolCount(
            standing=tuple(one.uid for one in self._nodes),
            consuming=tuple(one.uid for one in self._nodes if one.consuming),
        )

    def _freezes(self, method: str) -> Iterator[Room]:
        for one in self._rules.freezes or ():
            start, end = _span(one)
            if _concerns(one.reasons, method) and start <= self.now < end:
                why = f": {one.why}" if one.why else ""
                yield Room(allowed=0, why=f"frozen until {end.isoformat(timespec='minutes')}{why}")

    def _windows(self, method: str) -> Iterator[Room]:
        concerned = [one for one in self._rules.windows or () if _concerns(one.reasons, method)]
        if not concerned or any(
            is_open(one.schedule, one.duration, self.now, one.time_zone or "") for one in concerned
        ):
            return
        hits = [next_hit(one.schedule, self.now, one.time_zone or "") for one in concerned]
        opening = min((one for one in hits if one is not None), default=None)
        when = f"the next opens at {opening.isoformat(timespec='minutes')}" if opening else "none opens again"
        yield Room(allowed=0, why=f"outside of its windows, {when}")

    def _rates(self, method: str) -> Iterator[Room]:
        yield from (self._rate(one) for one in self._rules.rates or () if _concerns(one.reasons, method))

    def _rate(self, rate: DisruptionRate) -> Room:
        span = _duration(rate.within)
        counted = [one.at for one in self._past if _concerns(rate.reasons, one.reason) and self.now - one.at < span]
        limit = share_of(rate.nodes, len(self._nodes))
        words = f"rate {rate.nodes} of {len(self._nodes)} nodes within {rate.within}: {len(counted)} went"
        freed = f", the next may go at {(min(counted) + span).isoformat(timespec='minutes')}" if counted else ""
        return Room(allowed=max(0, limit - len(counted)), why=words + (freed if len(counted) >= limit else ""))


def _left(nodes: str, among: Sequence[NodeCounted], written: str) -> Room:
    limit, used = share_of(nodes, len(among)), sum(one.consuming for one in among)
    words = f"{written} of {len(among)} nodes allows {limit}, {used} in use (NotReady or going)"
    return Room(allowed=max(0, limit - used), why=words)


def _concerns(reasons: Sequence[str] | None, method: str) -> bool:
    return not reasons or method in reasons


def _problems(rules: DisruptionRules, field: str) -> Iterator[str]:
    if rules.minimum_node_age is not None:
        yield from _said(f"{field}.minimumNodeAge", _duration, rules.minimum_node_age)
    for number, window in enumerate(rules.windows or ()):
        yield from _said(f"{field}.windows[{number}]", _read_window, window)
    for number, freeze in enumerate(rules.freezes or ()):
        yield from _said(f"{field}.freezes[{number}]", _read_freeze, freeze)
    for number, rate in enumerate(rules.rates or ()):
        yield from _said(f"{field}.rates[{number}]", _read_rate, rate)
    if rules.per_zone is not None and rules.per_zone.nodes is not None:
        yield from _said(f"{field}.perZone.nodes", read_count, rules.per_zone.nodes)
    if rules.cluster_nodes is not None:
        yield from _said(f"{field}.clusterNodes", read_count, rules.cluster_nodes)


def _said(where: str, read: Callable[[T], object], value: T) -> Iterator[str]:
    try:
        read(value)
    except ValueError as error:
        yield f"{where}: {error}"


def _read_window(one: DisruptionWindow) -> None:
    _duration(one.duration)
    next_hit(one.schedule, _ANY_TIME, one.time_zone or "")


def _read_freeze(one: DisruptionFreeze) -> None:
    start, end = _span(one)
    if end <= start:
        raise ValueError(f"end {one.end!r} is not after start {one.start!r}: write a later end")


def _read_rate(one: DisruptionRate) -> None:
    _duration(one.within)
    read_count(one.nodes)


def _duration(text: str) -> timedelta:
    found = parse_duration(text)
    if found is None or found <= timedelta(0):
        raise ValueError(f"{text!r} is no length of time: write one such as 30m or 4h")
    return found


def _span(one: DisruptionFreeze) -> tuple[datetime, datetime]:
    zone = one.time_zone or ""
    return moment(one.start, zone), moment(one.end, zone)


def reopens(pools: Iterable[PoolWishes], now: datetime) -> datetime | None:
    """The first such moment of any of them. What cannot be read says nothing here: its NodePool is closed anyway."""
    return min((one for pool in pools for one in _moments(pool, now) if one > now), default=None)


def opens(pool: PoolWishes, past: Iterable[Disrupted], asking: Collection[Asking], now: datetime) -> datetime | None:
    """The same for one NodePool whose wishes are known: a rate frees the next, a node comes of age."""
    known = [reopens([pool], now), *_freed(pool, [one.at for one in past if one.pool == pool.name])]
    youngest = _length(pool.rules.minimum_node_age) if pool.rules else None
    known += [one.created + youngest for one in asking if one.created and youngest]
    return min((one for one in known if one is not None and one > now), default=None)


def _freed(pool: PoolWishes, went: list[datetime]) -> Iterator[datetime]:
    for rate in (pool.rules.rates or ()) if pool.rules else ():
        within = _length(rate.within)
        yield from (at + within for at in went if within)


def _length(text: str | None) -> timedelta | None:
    return next(_read(partial(parse_duration, text)), None) if text else None


def _moments(pool: PoolWishes, now: datetime) -> Iterator[datetime]:
    for budget in pool.budgets:
        yield from _read(partial(_end_of, budget, now))
    rules = pool.rules
    for window in (rules.windows or ()) if rules else ():
        yield from _read(partial(_opening, window, now))
    for freeze in (rules.freezes or ()) if rules else ():
        yield from _read(partial(_thaw, freeze, now))


def _read(ask: Callable[[], T | None]) -> Iterator[T]:
    try:
        found = ask()
    except ValueError:
        return
    if found is not None:
        yield found


def _end_of(budget: Budget, now: datetime) -> datetime | None:
    """When a scheduled budget that holds now ends, at the earliest."""
    lasting = parse_duration(budget.duration or "0s")
    if not budget.schedule or lasting is None:
        return None
    hit = next_hit(budget.schedule, now - lasting)
    return hit + lasting if hit is not None and hit <= now else None


def _opening(window: DisruptionWindow, now: datetime) -> datetime | None:
    """When it opens next; None while it is open."""
    zone = window.time_zone or ""
    return None if is_open(window.schedule, window.duration, now, zone) else next_hit(window.schedule, now, zone)


def _thaw(freeze: DisruptionFreeze, now: datetime) -> datetime | None:
    zone = freeze.time_zone or ""
    return moment(freeze.end, zone) if moment(freeze.start, zone) <= now else None
