"""When a NodePool reads its budget again, while wishes wait for it.

The watch tells of what a budget depends on, and whoever has a permit gives it back: then it is read at once. A look by
time is for what nobody told of, so it comes ever more slowly; where time alone lets nodes go, it comes at that time.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from model.coordination import Permit
from policy.budgets import Allowance

LOOK_AGAIN: Final = timedelta(seconds=30)
"""After a change, ..."""
LOOK_SLOWEST: Final = timedelta(minutes=4)
"""... and while nothing changes: twice as long each time, up to this."""
LOOK_FIXED: Final = timedelta(hours=1)
"""While nothing that nodes do lets any go; a change of the spec or of a pause is told."""
LATE: Final = timedelta(seconds=5)
"""Who read the budget has another clock: by it the moment that has come here was still to come."""


def is_fixed(allowances: Mapping[str, Allowance], held: str) -> bool:
    """Nothing goes whatever nodes do, for none of the reasons; `held`: why nothing goes at all."""
    return bool(held) or all(one.fixed for one in allowances.values())


def next_look(
    looks: int,
    allowances: Mapping[str, Allowance],
    permits: Sequence[Permit],
    now: datetime,
    *,
    held: str = "",
    until: datetime | None = None,
    booked_until: datetime | None = None,
) -> datetime:
    """After as many looks since the last change, `now` being that of the last. `held` ends at `until`, others' places
    under what all share at `booked_until`, if those are what is waited for."""
    if is_fixed(allowances, held):
        return _first((until,) if held else _opening(allowances, now), now + LOOK_FIXED, now)
    pause = min(LOOK_SLOWEST, LOOK_AGAIN * 2 ** min(looks - 1, 8))
    lapses = (booked_until, *(one.counts_until for one in permits))
    return _first((*_opening(allowances, now), *lapses), now + pause, now)


def _opening(allowances: Mapping[str, Allowance], now: datetime) -> Iterable[datetime]:
    return [max(one.opens, now + LATE) for one in allowances.values() if one.opens]


def _first(moments: Iterable[datetime | None], latest: datetime, now: datetime) -> datetime:
    return min((one for one in (*moments, latest) if one is not None and one > now), default=latest)
