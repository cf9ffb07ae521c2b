"""Capacity reservations: create, describe, modify and cancel them, and choose the reservation of a launch.

The free capacity follows from the instances in a reservation. `lifecycle` starts and ends reservations.

Rules from EC2's user guide: a targeted launch uses its reservation or fails. A launch without a preference uses a
matching `open` reservation with free capacity, if any. Spot never uses reservations. Capacity blocks and interruptible
reservations only accept launches that target them with their market type.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from tenure.sandbox.aws.ec2.call import Call, new_id, not_found, require_well_formed
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate, tag_facts
from tenure.sandbox.aws.ec2.records import Reservation
from tenure.sandbox.aws.ec2.reservations.lifecycle import BLOCK, ENDED, close, set_times
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.ec2.tags import read_specifications, tag_list
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, invalid_value, missing_parameter
from tenure.sandbox.aws.wire.xml import iso

INTERRUPTIBLE = "interruptible-capacity-reservation"
RESERVED_MARKETS = frozenset({"capacity-block", INTERRUPTIBLE})


@dataclass(frozen=True)
class ReservationCriteria:
    """Attributes that must match between a reservation and a launch."""

    instance_type: str
    zone: str
    tenancy: str
    platform: str

    @classmethod
    def of_reservation(cls, reservation: Reservation) -> ReservationCriteria:
        return cls(reservation.instance_type, reservation.zone, reservation.tenancy, reservation.platform)


def choose_reservation(
    environment: Environment, fit: ReservationCriteria, *, market: str, specification: dict[str, Any] | None
) -> Reservation | None:
    """Raises ReservationCapacityExceeded if the launch requires a reservation that has no free capacity."""
    specification = specification or {}
    target = specification.get("CapacityReservationTarget", {}).get("CapacityReservationId")
    preference = specification.get("CapacityReservationPreference", "open")
    if market == "spot":
        if target or preference == "capacity-reservations-only":
            raise bad_combination("Spot Instances cannot be launched into a Capacity Reservation.")
        return None
    if target:
        return _find_target(environment, target, fit, market)
    if market in RESERVED_MARKETS:
        raise invalid_value(f"A Capacity Reservation must be targeted for the market type {market}")
    if preference == "none":
        return None
    found = _open(environment, fit)
    if found is None and preference == "capacity-reservations-only":
        raise _capacity_exceeded()
    return found


def available_count(reservation: Reservation) -> int:
    return max(0, reservation.total - reservation.used) if reservation.state == "active" else 0


def market_of(reservation: Reservation) -> str:
    """The market that a launch into the reservation must name."""
    if reservation.interruptible:
        return INTERRUPTIBLE
    return "capacity-block" if reservation.kind == "capacity-block" else "on-demand"


def has_open_capacity(environment: Environment, instance_type: str, zone: str | None) -> bool:
    """Whether an open reservation for this type and zone has free capacity, with any tenancy and platform."""
    return any(
        (one.instance_type, one.zone) == (instance_type, zone) and _is_open(one) and available_count(one)
        for one in environment.reservations.values()
    )


def _find_target(environment: Environment, target: str, fit: ReservationCriteria, market: str) -> Reservation:
    require_well_formed([target], "cr")
    reservation = environment.reservations.get(target)
    if reservation is None:
        raise not_found([target], "cr", "Capacity Reservation")
    if ReservationCriteria.of_reservation(reservation) != fit or market_of(reservation) != market:
        raise AwsError(
            "ReservationCapacityIncompatible",
            f"The attributes of the requested instance do not match Capacity Reservation {target}.",
        )
    if available_count(reservation) < 1:
        raise _capacity_exceeded()
    return reservation


def _open(environment: Environment, fit: ReservationCriteria) -> Reservation | None:
    for reservation in environment.reservations.values():
        if (
            _is_open(reservation)
            and ReservationCriteria.of_reservation(reservation) == fit
            and available_count(reservation) > 0
        ):
            return reservation
    return None


def _is_open(reservation: Reservation) -> bool:
    return reservation.match_criteria == "open" and market_of(reservation) == "on-demand"


def _capacity_exceeded() -> AwsError:
    return AwsError(
        "ReservationCapacityExceeded",
        "The requested reservation does not have sufficient compatible and available capacity for this request.",
    )


PATHS = {
    "instance-type": "InstanceType",
    "owner-id": "OwnerId",
    "instance-platform": "InstancePlatform",
    "availability-zone": "AvailabilityZone",
    "tenancy": "Tenancy",
    "state": "State",
    "end-date-type": "EndDateType",
    "instance-match-criteria": "InstanceMatchCriteria",
}
FILTERS = frozenset(PATHS) | {"start-date", "end-date", "tag-key", "tag-value", "outpost-arn", "placement-group-arn"}


def create_capacity_reservation(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    for name in ("InstanceType", "InstancePlatform", "InstanceCount"):
        if request.get(name) is None:
            raise missing_parameter(name)
    if request["InstanceType"] not in all_types():
        raise invalid_value(f"Invalid value '{request['InstanceType']}' for InstanceType.")
    zone, zone_id = zone_of(environment, request)
    if request.get("DryRun"):
        raise dry_run_ok()
    reservation = make_reservation(environment, request, zone=zone, zone_id=zone_id)
    set_times(environment, reservation, start=reservation.start, end=_parse_time(request.get("EndDate")))
    return {"CapacityReservation": reservation_view(environment, reservation)}


def make_reservation(environment: Environment, request: dict[str, Any], *, zone: str, zone_id: str) -> Reservation:
    """A reservation from the members of CreateCapacityReservation, active now and without an end."""
    now = environment.now().replace(microsecond=0)
    reservation = Reservation(
        id=new_id("cr"),
        instance_type=request["InstanceType"],
        zone=zone,
        zone_id=zone_id,
        platform=request["InstancePlatform"],
        tenancy=request.get("Tenancy", "default"),
        total=request["InstanceCount"],
        owner=environment.account,
        created=now,
        start=now,
        end=None,
        match_criteria=request.get("InstanceMatchCriteria", "open"),
        kind="default",
        tags=read_specifications(request.get("TagSpecifications")).get("capacity-reservation", {}),
    )
    environment.reservations[reservation.id] = reservation
    return reservation


def zone_of(environment: Environment, request: dict[str, Any]) -> tuple[str, str]:
    for subnet in environment.network.subnets():
        pair: tuple[str, str] = (subnet.availability_zone, subnet.availability_zone_id)
        if request.get("AvailabilityZone") == pair[0] or request.get("AvailabilityZoneId") == pair[1]:
            return pair
    raise invalid_value(f"Invalid availability zone: [{request.get('AvailabilityZone')}]")


def _parse_time(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def describe_capacity_reservations(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    ids = request.get("CapacityReservationIds") or []
    if ids and "MaxResults" in request:
        raise bad_combination("The parameter CapacityReservationIds cannot be used with the parameter MaxResults")
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    chosen = [
        r for r in _select_reservations(environment, ids) if matches_filters(filters, _filter_facts(environment, r))
    ]
    chosen.sort(key=_sort_key)
    page_items, token = paginate(chosen, request, _sort_key, low=1, high=1000)
    return {"CapacityReservations": [reservation_view(environment, r) for r in page_items], "NextToken": token}


def _sort_key(reservation: Reservation) -> str:
    return reservation.id


def _select_reservations(environment: Environment, ids: list[str]) -> list[Reservation]:
    require_well_formed(ids, "cr")
    missing = [one for one in ids if one not in environment.reservations]
    if missing:
        raise not_found(missing, "cr", "Capacity Reservation")
    return (
        [environment.reservations[one] for one in dict.fromkeys(ids)]
        if ids
        else list(environment.reservations.values())
    )


def _filter_facts(environment: Environment, reservation: Reservation) -> dict[str, list[str]]:
    described = reservation_view(environment, reservation)
    facts = {name: [str(described[path])] for name, path in PATHS.items()}
    facts["start-date"] = [iso(reservation.start)]
    facts["end-date"] = [iso(reservation.end)] if reservation.end else []
    return {**facts, **tag_facts(reservation.tags)}


def reservation_view(environment: Environment, reservation: Reservation) -> dict[str, Any]:
    return {
        "CapacityReservationId": reservation.id,
        "CapacityReservationArn": environment.arn("capacity-reservation", reservation.id, reservation.owner),
        "OwnerId": reservation.owner,
        "AvailabilityZone": reservation.zone,
        "AvailabilityZoneId": reservation.zone_id,
        "InstanceType": reservation.instance_type,
        "InstancePlatform": reservation.platform,
        "Tenancy": reservation.tenancy,
        "TotalInstanceCount": reservation.total,
        "AvailableInstanceCount": available_count(reservation),
        "EbsOptimized": False,
        "EphemeralStorage": False,
        "State": reservation.state,
        "StartDate": reservation.start,
        "EndDate": reservation.end,
        "EndDateType": "limited" if reservation.end else "unlimited",
        "InstanceMatchCriteria": reservation.match_criteria,
        "CreateDate": reservation.created,
        "ReservationType": reservation.kind,
        "Interruptible": reservation.interruptible,
        "CapacityBlockId": reservation.id.replace("cr-", "cb-") if reservation.kind == BLOCK else None,
        "Tags": tag_list(reservation.tags),
    }


def modify_capacity_reservation(call: Call) -> dict[str, Any]:
    reservation, request = _find_modifiable(call), call.params
    if request.get("InstanceCount") is not None:
        reservation.total = request["InstanceCount"]
    if request.get("EndDate"):
        set_times(call.environment, reservation, start=reservation.start, end=_parse_time(request["EndDate"]))
    if request.get("EndDateType") == "unlimited":
        set_times(call.environment, reservation, start=reservation.start, end=None)
    if request.get("InstanceMatchCriteria"):
        reservation.match_criteria = request["InstanceMatchCriteria"]
    return {"Return": True}


def cancel_capacity_reservation(call: Call) -> dict[str, Any]:
    reservation = _find_modifiable(call)
    if reservation.kind == BLOCK:
        raise AwsError("UnsupportedOperation", f"The capacity block {reservation.id} cannot be cancelled.")
    close(call.environment, reservation, "cancelled")
    return {"Return": True}


def _find_modifiable(call: Call) -> Reservation:
    """The named reservation. Raises InvalidCapacityReservationState if it has ended."""
    reservation_id = call.params.get("CapacityReservationId")
    if not reservation_id:
        raise missing_parameter("CapacityReservationId")
    (reservation,) = _select_reservations(call.environment, [reservation_id])
    if reservation.state in ENDED:
        text = f"The Capacity Reservation {reservation.id} is in the state {reservation.state}."
        raise AwsError("InvalidCapacityReservationState", text)
    if call.params.get("DryRun"):
        raise dry_run_ok()
    return reservation
