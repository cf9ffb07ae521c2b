"""Which capacity reservation a launch goes into: the one it targets, an open one that fits, or none.

Rules from EC2's user guide: a targeted launch takes its reservation or fails; a launch without a preference is put
into a matching `open` reservation with room, silently; spot never uses reservations; capacity blocks and interruptible
reservations take only launches that ask for their kind of market and name them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandbox.aws.ec2.ids import not_found, require_well_formed
from sandbox.aws.ec2.records import Reservation
from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError, bad_combination, invalid_value

INTERRUPTIBLE = "interruptible-capacity-reservation"
RESERVED_MARKETS = frozenset({"capacity-block", INTERRUPTIBLE})


@dataclass(frozen=True)
class Fit:
    """What a reservation and a launch must have in common."""

    instance_type: str
    zone: str
    tenancy: str
    platform: str

    @classmethod
    def of(cls, reservation: Reservation) -> Fit:
        return cls(reservation.instance_type, reservation.zone, reservation.tenancy, reservation.platform)


def choose_reservation(
    world: World, fit: Fit, *, market: str, specification: dict[str, Any] | None
) -> Reservation | None:
    """Raises ReservationCapacityExceeded when the launch insists on a reservation that has no room."""
    specification = specification or {}
    target = specification.get("CapacityReservationTarget", {}).get("CapacityReservationId")
    preference = specification.get("CapacityReservationPreference", "open")
    if market == "spot":
        if target or preference == "capacity-reservations-only":
            raise bad_combination("Spot Instances cannot be launched into a Capacity Reservation.")
        return None
    if target:
        return _targeted(world, target, fit, market)
    if market in RESERVED_MARKETS:
        raise invalid_value(f"A Capacity Reservation must be targeted for the market type {market}")
    if preference == "none":
        return None
    found = _open(world, fit)
    if found is None and preference == "capacity-reservations-only":
        raise _exceeded()
    return found


def room(reservation: Reservation) -> int:
    return max(0, reservation.total - reservation.used) if reservation.state == "active" else 0


def market_of(reservation: Reservation) -> str:
    """The market that a launch into the reservation must name."""
    if reservation.interruptible:
        return INTERRUPTIBLE
    return "capacity-block" if reservation.kind == "capacity-block" else "on-demand"


def has_open_room(world: World, instance_type: str, zone: str | None) -> bool:
    """Whether an open reservation for this type and zone has room, whatever its tenancy and platform."""
    return any(
        (one.instance_type, one.zone) == (instance_type, zone) and _is_open(one) and room(one)
        for one in world.reservations.values()
    )


def _targeted(world: World, target: str, fit: Fit, market: str) -> Reservation:
    require_well_formed([target], "cr")
    reservation = world.reservations.get(target)
    if reservation is None:
        raise not_found([target], "cr", "Capacity Reservation")
    if Fit.of(reservation) != fit or market_of(reservation) != market:
        raise AwsError(
            "ReservationCapacityIncompatible",
            f"The attributes of the requested instance do not match Capacity Reservation {target}.",
        )
    if room(reservation) < 1:
        raise _exceeded()
    return reservation


def _open(world: World, fit: Fit) -> Reservation | None:
    for reservation in world.reservations.values():
        if _is_open(reservation) and Fit.of(reservation) == fit and room(reservation) > 0:
            return reservation
    return None


def _is_open(reservation: Reservation) -> bool:
    return reservation.match_criteria == "open" and market_of(reservation) == "on-demand"


def _exceeded() -> AwsError:
    return AwsError(
        "ReservationCapacityExceeded",
        "The requested reservation does not have sufficient compatible and available capacity for this request.",
    )
