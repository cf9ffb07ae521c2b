"""What capacity reservations add to an instance type: an offering each, and the labels that their nodes carry.

Pure: `reservations.py` says which there are, `instance_types.py` puts them beside the offerings that anyone can buy.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from model import labels
from model.catalogue import Offering
from model.kinds.ec2nodeclass import ResolvedCapacityReservation

PRICE_PART: Final = 10_000_000
"""A reserved instance is paid for already: it costs this part of on-demand, so that larger ones still cost more."""


def reserved_offerings(
    reservations: Iterable[ResolvedCapacityReservation],
    base: Sequence[Offering],
    zone_ids: Mapping[str, str],
    launchable: Collection[str],
) -> list[Offering]:
    """One for each reservation of the type whose other offerings are `base`; those about to end are not available."""
    prices = {one.zone: one.price for one in base if one.capacity_type == labels.ON_DEMAND}
    return [
        Offering(
            zone=one.availability_zone,
            zone_id=zone_ids.get(one.availability_zone, ""),
            capacity_type=labels.RESERVED,
            price=prices.get(one.availability_zone, 0.0) / PRICE_PART,
            available=one.availability_zone in launchable and one.state == "active",
            reservation_id=one.id,
            reservation_type="capacity-block" if one.reservation_type == "capacity-block" else "default",
            interruptible=bool(one.interruptible),
        )
        for one in reservations
    ]


def reserved_labels(
    described: Mapping[str, tuple[str, ...]], reservations: Sequence[ResolvedCapacityReservation]
) -> dict[str, tuple[str, ...]]:
    """The type's labels with what nodes in these reservations may have."""
    if not reservations:
        return dict(described)
    return {
        **described,
        labels.CAPACITY_TYPE: (*described.get(labels.CAPACITY_TYPE, ()), labels.RESERVED),
        labels.CAPACITY_RESERVATION_ID: tuple(sorted(one.id for one in reservations)),
        labels.CAPACITY_RESERVATION_TYPE: tuple(sorted({one.reservation_type for one in reservations})),
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: tuple(sorted({_bool(one.interruptible) for one in reservations})),
    }


def _bool(value: bool | None) -> str:
    return "true" if value else "false"
