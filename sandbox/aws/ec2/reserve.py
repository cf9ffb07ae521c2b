"""Which capacity reservation a launch goes into: the one it targets, an open one that fits, or none.

Rules from EC2's user guide: a targeted launch takes its reservation or fails; a launch without a preference is put
into a matching `open` reservation with room, silently; spot never uses reservations.
"""

from __future__ import annotations

from typing import Any

from sandbox.aws.ec2.ids import not_found, require_well_formed
from sandbox.aws.ec2.records import Reservation
from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError, invalid_value

RESERVED_MARKETS = frozenset({"capacity-block", "interruptible-capacity-reservation"})


def choose_reservation(
    world: World, *, instance_type: str, zone: str, market: str, tenancy: str, specification: dict[str, Any] | None
) -> Reservation | None:
    """Raises ReservationCapacityExceeded when the launch insists on a reservation that has no room."""
    specification = specification or {}
    target = specification.get("CapacityReservationTarget", {}).get("CapacityReservationId")
    if target:
        return _targeted(world, target, instance_type, zone, market)
    if market in RESERVED_MARKETS:
        raise invalid_value(f"A Capacity Reservation must be targeted for the market type {market}")
    preference = specification.get("CapacityReservationPreference", "open")
    if market == "spot" or preference == "none":
        return None
    found = _open(world, instance_type, zone, tenancy)
    if found is None and preference == "capacity-reservations-only":
        raise _exceeded()
    return found


def room(reservation: Reservation) -> int:
    return max(0, reservation.total - reservation.used) if reservation.state == "active" else 0


def _targeted(world: World, target: str, instance_type: str, zone: str, market: str) -> Reservation:
    require_well_formed([target], "cr")
    reservation = world.reservations.get(target)
    if reservation is None:
        raise not_found([target], "cr", "Capacity Reservation")
    wanted_kind = "capacity-block" if market == "capacity-block" else "default"
    if reservation.kind != wanted_kind or (reservation.instance_type, reservation.zone) != (instance_type, zone):
        raise AwsError(
            "ReservationCapacityIncompatible",
            f"The attributes of the requested instance do not match Capacity Reservation {target}.",
        )
    if room(reservation) < 1:
        raise _exceeded()
    return reservation


def _open(world: World, instance_type: str, zone: str, tenancy: str) -> Reservation | None:
    for reservation in world.reservations.values():
        place = (reservation.instance_type, reservation.zone, reservation.tenancy)
        usable = (
            reservation.match_criteria == "open" and reservation.kind == "default" and not reservation.interruptible
        )
        if usable and place == (instance_type, zone, tenancy) and room(reservation) > 0:
            return reservation
    return None


def _exceeded() -> AwsError:
    return AwsError(
        "ReservationCapacityExceeded",
        "The requested reservation does not have sufficient compatible and available capacity for this request.",
    )
