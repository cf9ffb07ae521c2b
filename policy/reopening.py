"""When time alone lets more nodes go than now: a budget's window or a freeze ends, a window opens.

`controller/disrupting.py` asks where budgets keep nodes that could go, so that the next pass comes then and not before;
NodePool workflows sleep until then while nothing else can let nodes go.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from model.disruption import Disrupted
from model.durations import parse_duration
from model.kinds import Budget
from model.kinds.disruption_rules import DisruptionFreeze, DisruptionWindow
from policy.allowances import PoolWishes
from policy.budgets import Asking
from policy.windows import is_open, moment, next_hit

T = TypeVar("T")


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
