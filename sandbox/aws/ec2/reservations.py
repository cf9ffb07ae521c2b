"""Capacity reservations: created, described, modified, cancelled; how many are free follows from who runs in them.

When they begin and end is `reservation_life`'s, who gets in is `reserve`'s.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from sandbox.aws.ec2.call import Call
from sandbox.aws.ec2.filters import accepts, compile_filters, tag_facts
from sandbox.aws.ec2.ids import new_id, not_found, require_well_formed
from sandbox.aws.ec2.paging import page
from sandbox.aws.ec2.records import Reservation
from sandbox.aws.ec2.reservation_life import BLOCK, ENDED, close, set_times
from sandbox.aws.ec2.reserve import room
from sandbox.aws.ec2.tagging import read_specifications, tag_list
from sandbox.aws.ec2.types_data import all_types
from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError, bad_combination, dry_run_ok, invalid_value, missing_parameter
from sandbox.aws.wire.xml import iso

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
    request, world = call.params, call.world
    for name in ("InstanceType", "InstancePlatform", "InstanceCount"):
        if request.get(name) is None:
            raise missing_parameter(name)
    if request["InstanceType"] not in all_types():
        raise invalid_value(f"Invalid value '{request['InstanceType']}' for InstanceType.")
    zone, zone_id = zone_of(world, request)
    if request.get("DryRun"):
        raise dry_run_ok()
    reservation = make(world, request, zone=zone, zone_id=zone_id)
    set_times(world, reservation, start=reservation.start, end=_moment(request.get("EndDate")))
    return {"CapacityReservation": view(world, reservation)}


def make(world: World, request: dict[str, Any], *, zone: str, zone_id: str) -> Reservation:
    """A reservation from CreateCapacityReservation's members, active from now on and without an end."""
    now = world.now().replace(microsecond=0)
    reservation = Reservation(
        id=new_id("cr"),
        instance_type=request["InstanceType"],
        zone=zone,
        zone_id=zone_id,
        platform=request["InstancePlatform"],
        tenancy=request.get("Tenancy", "default"),
        total=request["InstanceCount"],
        owner=world.account,
        created=now,
        start=now,
        end=None,
        match_criteria=request.get("InstanceMatchCriteria", "open"),
        kind="default",
        tags=read_specifications(request.get("TagSpecifications")).get("capacity-reservation", {}),
    )
    world.reservations[reservation.id] = reservation
    return reservation


def zone_of(world: World, request: dict[str, Any]) -> tuple[str, str]:
    for subnet in world.network.subnets():
        pair: tuple[str, str] = (subnet.availability_zone, subnet.availability_zone_id)
        if request.get("AvailabilityZone") == pair[0] or request.get("AvailabilityZoneId") == pair[1]:
            return pair
    raise invalid_value(f"Invalid availability zone: [{request.get('AvailabilityZone')}]")


def _moment(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def describe_capacity_reservations(call: Call) -> dict[str, Any]:
    request, world = call.params, call.world
    ids = request.get("CapacityReservationIds") or []
    if ids and "MaxResults" in request:
        raise bad_combination("The parameter CapacityReservationIds cannot be used with the parameter MaxResults")
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    chosen = [r for r in _chosen(world, ids) if accepts(filters, _facts(world, r))]
    chosen.sort(key=_order)
    shown, token = page(chosen, request, _order, low=1, high=1000)
    return {"CapacityReservations": [view(world, r) for r in shown], "NextToken": token}


def _order(reservation: Reservation) -> str:
    return reservation.id


def _chosen(world: World, ids: list[str]) -> list[Reservation]:
    require_well_formed(ids, "cr")
    missing = [one for one in ids if one not in world.reservations]
    if missing:
        raise not_found(missing, "cr", "Capacity Reservation")
    return [world.reservations[one] for one in dict.fromkeys(ids)] if ids else list(world.reservations.values())


def _facts(world: World, reservation: Reservation) -> dict[str, list[str]]:
    shown = view(world, reservation)
    facts = {name: [str(shown[path])] for name, path in PATHS.items()}
    facts["start-date"] = [iso(reservation.start)]
    facts["end-date"] = [iso(reservation.end)] if reservation.end else []
    return {**facts, **tag_facts(reservation.tags)}


def view(world: World, reservation: Reservation) -> dict[str, Any]:
    return {
        "CapacityReservationId": reservation.id,
        "CapacityReservationArn": world.arn("capacity-reservation", reservation.id, reservation.owner),
        "OwnerId": reservation.owner,
        "AvailabilityZone": reservation.zone,
        "AvailabilityZoneId": reservation.zone_id,
        "InstanceType": reservation.instance_type,
        "InstancePlatform": reservation.platform,
        "Tenancy": reservation.tenancy,
        "TotalInstanceCount": reservation.total,
        "AvailableInstanceCount": room(reservation),
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
    reservation, request = _modifiable(call), call.params
    if request.get("InstanceCount") is not None:
        reservation.total = request["InstanceCount"]
    if request.get("EndDate"):
        set_times(call.world, reservation, start=reservation.start, end=_moment(request["EndDate"]))
    if request.get("EndDateType") == "unlimited":
        set_times(call.world, reservation, start=reservation.start, end=None)
    if request.get("InstanceMatchCriteria"):
        reservation.match_criteria = request["InstanceMatchCriteria"]
    return {"Return": True}


def cancel_capacity_reservation(call: Call) -> dict[str, Any]:
    reservation = _modifiable(call)
    if reservation.kind == BLOCK:
        raise AwsError("UnsupportedOperation", f"The capacity block {reservation.id} cannot be cancelled.")
    close(call.world, reservation, "cancelled")
    return {"Return": True}


def _modifiable(call: Call) -> Reservation:
    """The named one. Raises InvalidCapacityReservationState for one that has ended."""
    reservation_id = call.params.get("CapacityReservationId")
    if not reservation_id:
        raise missing_parameter("CapacityReservationId")
    (reservation,) = _chosen(call.world, [reservation_id])
    if reservation.state in ENDED:
        text = f"The Capacity Reservation {reservation.id} is in the state {reservation.state}."
        raise AwsError("InvalidCapacityReservationState", text)
    if call.params.get("DryRun"):
        raise dry_run_ok()
    return reservation
