"""Which reserved capacity a launch goes into: one kind of reservation, and per type and zone one reservation.

Karpenter's filters 2 to 4 (reference 2.4), between what can be had at all and the choice by price in `selection.py`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from aws.candidates import Candidate, candidate, keeping
from model import labels
from model.catalogue import Market, Offering

Remaining = Callable[[str], int]
"""How many instances a reservation has room for."""

_PREFERRED: Final[tuple[Market, ...]] = ("default", "capacity-block", "interruptible")
"""Where prices are equal. One request buys one of these kinds only."""


def reserved_only(found: Sequence[Candidate], remaining: Remaining) -> Sequence[Candidate]:
    """The candidates with reserved offerings of one kind; empty when none has room."""
    reserved = keeping(found, lambda one: _has_room(one, remaining))
    kinds = {kind: of for kind in _PREFERRED if (of := _of_kind(reserved, kind))}
    if not kinds:
        return ()
    kind = min(kinds, key=lambda kind: (_lowest(kinds[kind]), _PREFERRED.index(kind)))
    chosen = _cheapest_block(kinds[kind]) if kind == "capacity-block" else kinds[kind]
    return [one for each in chosen if (one := _one_per_zone(each, remaining))]


def unreserved(found: Sequence[Candidate]) -> Sequence[Candidate]:
    return keeping(found, lambda one: one.capacity_type != labels.RESERVED)


def _has_room(one: Offering, remaining: Remaining) -> bool:
    return one.capacity_type == labels.RESERVED and remaining(one.reservation_id) > 0


def _of_kind(reserved: Sequence[Candidate], kind: Market) -> Sequence[Candidate]:
    return keeping(reserved, lambda one: one.market == kind)


def _lowest(found: Sequence[Candidate]) -> float:
    return min(one.price for one in found)


def _cheapest_block(found: Sequence[Candidate]) -> Sequence[Candidate]:
    """A request for a capacity block names a single one."""
    cheapest = min(found, key=lambda one: (one.price, one.type.name))
    reservation = cheapest.offerings[0].reservation_id
    return keeping([cheapest], lambda one: one.reservation_id == reservation)


def _one_per_zone(found: Candidate, remaining: Remaining) -> Candidate | None:
    """The reservation with most room in each zone: an override can name a type and subnet once only."""
    fullest: dict[str, Offering] = {}
    for one in found.offerings:
        known = fullest.get(one.zone)
        if known is None or remaining(one.reservation_id) > remaining(known.reservation_id):
            fullest[one.zone] = one
    ids = {one.reservation_id for one in fullest.values()}
    return candidate(found.type, (one for one in found.offerings if one.reservation_id in ids))
