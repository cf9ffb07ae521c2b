"""From what EC2 could not give to marks: what is not asked for again for some minutes, and how far each reaches."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from model.catalogue import UnavailableOffering
from model.labels import CAPACITY_RESERVATION_ID, CAPACITY_TYPE, INSTANCE_TYPE, RESERVED, SPOT, ZONE
from model.launches import FleetError

UNAVAILABLE_FOR = timedelta(minutes=3)
"""Each new refusal begins it anew (reference 2.3), and each interruption (5.3)."""
INTERRUPTED = "Interrupted"
_ANY = "*"


def marks_of(errors: Iterable[FleetError], node_class: str, now: datetime) -> tuple[UnavailableOffering, ...]:
    """One for each thing that was refused, in a fixed order. Only of errors that say that nothing but capacity is
    missing; one that names nothing teaches nothing."""
    found = {_key(mark): mark for error in errors if error.insufficient and (mark := _mark(error, node_class, now))}
    return tuple(found[key] for key in sorted(found))


def mark_of_taken(labels: Mapping[str, str], at: datetime) -> UnavailableOffering | None:
    """What an interruption of a node with these labels says of the capacity pool that it came from (reference 5.3):
    spot of its type in its zone, or its reservation, is short. None where they do not tell, or it is neither."""
    instance_type, zone = labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, "")
    kind, reservation = labels.get(CAPACITY_TYPE, ""), labels.get(CAPACITY_RESERVATION_ID, "")
    if not (instance_type and zone) or kind not in (SPOT, RESERVED) or (kind == RESERVED) != bool(reservation):
        return None
    return UnavailableOffering(
        instance_type=instance_type,
        zone=zone,
        capacity_type=kind,
        until=at + UNAVAILABLE_FOR,
        reason=INTERRUPTED,
        reservation_id=reservation,
    )


def latest(marks: Iterable[UnavailableOffering], now: datetime) -> tuple[UnavailableOffering, ...]:
    """One for each thing, however often it was refused; those that are over are left out."""
    found: dict[tuple[str, ...], UnavailableOffering] = {}
    for mark in marks:
        known = found.get(_key(mark))
        if mark.until > now and (known is None or known.until < mark.until):
            found[_key(mark)] = mark
    return tuple(found.values())


def _mark(error: FleetError, node_class: str, now: datetime) -> UnavailableOffering | None:
    mark = UnavailableOffering(
        instance_type=_ANY,
        zone=_ANY,
        capacity_type=error.capacity_type,
        until=now + UNAVAILABLE_FOR,
        reason=error.code,
        node_class=node_class,
    )
    match error.scope:
        case "capacity type":
            return mark.model_copy(update={"node_class": ""})
        case "subnet" if error.subnet_id:
            place = {"zone": error.zone or _ANY, "capacity_type": _ANY, "subnet_id": error.subnet_id}
            return mark.model_copy(update=place)
        case "placement group" if error.placement_group and error.zone:
            place = {"zone": error.zone, "capacity_type": _ANY, "placement_group": error.placement_group}
            return mark.model_copy(update=place)
        case "offering" if error.instance_type and error.zone:
            return mark.model_copy(update=_offering(error))
        case _:
            return None


def _offering(error: FleetError) -> dict[str, str]:
    """Where a placement group, its partition or a reservation was asked for, it alone is known to be full."""
    narrow = {
        "reservation_id": error.reservation_id,
        "placement_group": error.placement_group,
        "partition": error.partition,
    }
    everywhere = {} if any(narrow.values()) else {"node_class": ""}
    return {"instance_type": error.instance_type, "zone": error.zone, **narrow, **everywhere}


def _key(mark: UnavailableOffering) -> tuple[str, ...]:
    return (
        mark.capacity_type,
        mark.instance_type,
        mark.zone,
        mark.subnet_id,
        mark.reservation_id,
        mark.placement_group,
        mark.partition,
        mark.node_class,
    )
