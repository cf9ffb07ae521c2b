"""When time alone lets more nodes go than now: a budget's window or a freeze ends, a window opens.

`controller/disrupting.py` asks where budgets keep nodes that could go, so that the next pass comes then and not before.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial

from model.durations import parse_duration
from model.kinds import Budget
from model.kinds.disruption_rules import DisruptionFreeze, DisruptionWindow
from policy.allowances import PoolWishes
from policy.windows import is_open, moment, next_hit


def reopens(pools: Iterable[PoolWishes], now: datetime) -> datetime | None:
    """The first such moment of any of them. What cannot be read says nothing here: its NodePool is closed anyway."""
    return min((one for pool in pools for one in _moments(pool, now) if one > now), default=None)


def _moments(pool: PoolWishes, now: datetime) -> Iterator[datetime]:
    for budget in pool.budgets:
        yield from _read(partial(_end_of, budget, now))
    rules = pool.rules
    for window in (rules.windows or ()) if rules else ():
        yield from _read(partial(_opening, window, now))
    for freeze in (rules.freezes or ()) if rules else ():
        yield from _read(partial(_thaw, freeze, now))


def _read(ask: Callable[[], datetime | None]) -> Iterator[datetime]:
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
