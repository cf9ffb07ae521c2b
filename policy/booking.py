"""Permits under budgets for all NodePools together: who has booked a place before whom. Pure.

The Cluster workflow keeps the book, so that two NodePools that look at the same moment do not both take the last place.
"""

from collections.abc import Iterable
from datetime import datetime

from model.permits import BookAsked, Booked


def booked(book: Iterable[Booked], asked: BookAsked, now: datetime) -> tuple[Booked, ...]:
    """The book with what a NodePool wants in it now, in the place of what it wanted before; without what has lapsed."""
    others = (one for one in book if one.pool != asked.pool and one.until > now)
    mine = (Booked(pool=asked.pool, claim_uid=uid, until=until) for uid, until in sorted(asked.wanted.items()))
    return (*others, *mine)


def before(book: Iterable[Booked], pool: str) -> tuple[str, ...]:
    """UIDs of what other NodePools have booked."""
    return tuple(one.claim_uid for one in book if one.pool != pool)


def lapses(book: Iterable[Booked], pool: str) -> datetime | None:
    """When the first of these is free again, unless its node is on its way by then."""
    return min((one.until for one in book if one.pool != pool), default=None)
