"""Lifecycle of capacity reservations: their start, their end, and the effect on their instances.

Rules from EC2's user guide: instances of an on-demand reservation keep running without it, those of a capacity block
are terminated half an hour before the end of the block.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from tenure.sandbox.aws.ec2.records import Instance, Reservation

if TYPE_CHECKING:
    from tenure.sandbox.aws.ec2.state import Environment

BLOCK = "capacity-block"
BLOCK_RECLAIM_SECONDS = 1800.0
ENDED = frozenset({"expired", "cancelled"})
TERMINATING_STATES = frozenset({"shutting-down", "terminated"})


def set_times(
    environment: Environment, reservation: Reservation, *, start: dt.datetime, end: dt.datetime | None
) -> None:
    """Set start and end as timestamps, and on the clock that `advance` moves."""
    now = environment.now()
    reservation.start, reservation.end = start, end
    reservation.starts_at = environment.clock.now() + max(0.0, (start - now).total_seconds())
    reservation.ends_at = None if end is None else environment.clock.now() + (end - now).total_seconds()
    reservation.state = "scheduled" if start > now else "active"


def settle_reservations(environment: Environment) -> None:
    """Start and end all reservations that are due."""
    now = environment.clock.now()
    for reservation in environment.reservations.values():
        if reservation.state == "scheduled" and reservation.starts_at <= now:
            reservation.state = "active"
        if reservation.state != "active" or reservation.ends_at is None:
            continue
        if reservation.kind == BLOCK and reservation.ends_at - BLOCK_RECLAIM_SECONDS <= now:
            _reclaim_block(environment, reservation)
        if reservation.ends_at <= now or (reservation.end is not None and reservation.end <= environment.now()):
            close(environment, reservation, "expired")


def next_reservation_due(environment: Environment) -> float | None:
    """Clock time of the next change of a reservation."""
    return min((due for one in environment.reservations.values() for due in _due_times(one)), default=None)


def _due_times(reservation: Reservation) -> list[float]:
    if reservation.state == "scheduled":
        return [reservation.starts_at]
    if reservation.state != "active" or reservation.ends_at is None:
        return []
    early = reservation.kind == BLOCK and not reservation.reclaimed
    return [reservation.ends_at - (BLOCK_RECLAIM_SECONDS if early else 0.0)]


def members(environment: Environment, reservation: Reservation) -> list[Instance]:
    """Instances in the reservation that are not shut down."""
    found = environment.instances.values()
    return [
        one for one in found if one.capacity_reservation_id == reservation.id and one.state not in TERMINATING_STATES
    ]


def close(environment: Environment, reservation: Reservation, state: str) -> None:
    """End a reservation. Its instances lose it; those of a capacity block are also terminated."""
    reservation.state = state
    if reservation.kind == BLOCK:
        _reclaim_block(environment, reservation)
    for instance in environment.instances.values():
        if instance.capacity_reservation_id == reservation.id:
            instance.capacity_reservation_id = None
            instance.invalidate_view()
    reservation.used = 0


def _reclaim_block(environment: Environment, reservation: Reservation) -> None:
    reservation.reclaimed = True
    for instance in members(environment, reservation):
        environment.reclaim(instance, "Server.CapacityBlockExpired", "The capacity block of the instance ends")
