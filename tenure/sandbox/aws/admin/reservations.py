"""The control API for capacity reservations (created, ended and interrupted as by AWS or their owner) and for placement
groups.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.aws.ec2.records import Reservation
from tenure.sandbox.aws.ec2.reservations.actions import make_reservation, reservation_view, zone_of
from tenure.sandbox.aws.ec2.reservations.lifecycle import BLOCK, ENDED, close, members, set_times
from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.services import eventbridge

Body = dict[str, Any]
DONE = {"ok": True}
KINDS = ("default", BLOCK)


def add_reservation(fake_aws: FakeAws, body: Body) -> Any:
    """Also kinds that EC2 cannot create by one call: capacity blocks, interruptible and shared reservations."""
    environment = fake_aws.default_environment
    if body["instance_type"] not in all_types() or body.get("kind", "default") not in KINDS:
        raise ValueError(f"no such instance type or kind; kinds are {', '.join(KINDS)}")
    request = {
        "InstanceType": body["instance_type"],
        "InstanceCount": int(body.get("count", 1)),
        "InstancePlatform": body.get("platform", "Linux/UNIX"),
        "InstanceMatchCriteria": body.get("criteria", "targeted"),
        "Tenancy": body.get("tenancy", "default"),
    }
    zone, zone_id = zone_of(environment, {"AvailabilityZone": body["zone"]})
    reservation = make_reservation(environment, request, zone=zone, zone_id=zone_id)
    reservation.kind = body.get("kind", "default")
    reservation.interruptible = bool(body.get("interruptible", False))
    reservation.owner = body.get("owner") or environment.account
    reservation.tags = dict(body.get("tags", {}))
    start = reservation.start + dt.timedelta(seconds=float(body.get("starts_in", 0)))
    lasts = body.get("lasts")
    end = None if lasts is None else start + dt.timedelta(seconds=float(lasts))
    set_times(environment, reservation, start=start, end=end)
    environment.moved.notify_all()
    return {"id": reservation.id}


def list_reservations(fake_aws: FakeAws, body: Body) -> Any:
    """State, capacity and instances of each reservation."""
    environment = fake_aws.default_environment
    environment.run_due_transitions()
    return {
        "reservations": [
            {
                "id": one.id,
                "state": one.state,
                "total": one.total,
                "available": reservation_view(environment, one)["AvailableInstanceCount"],
                "instances": [instance.id for instance in members(environment, one)],
            }
            for one in environment.reservations.values()
        ]
    }


def end_reservation(fake_aws: FakeAws, body: Body) -> Any:
    """`state`: cancelled or expired. On-demand instances keep running, those of a capacity block are terminated."""
    state = body.get("state", "cancelled")
    if state not in ENDED:
        raise ValueError(f"state must be one of {', '.join(sorted(ENDED))}")
    reservation = _get_reservation(fake_aws, body)
    reservation.end = fake_aws.default_environment.now() if state == "expired" else reservation.end
    close(fake_aws.default_environment, reservation, state)
    return DONE


def resize_reservation(fake_aws: FakeAws, body: Body) -> Any:
    _get_reservation(fake_aws, body).total = int(body["total"])
    return DONE


def interrupt_reservation(fake_aws: FakeAws, body: Body) -> Any:
    """Reclaim the capacity: warn each instance, terminate it after the notice, and shrink the reservation."""
    environment = fake_aws.default_environment
    reservation = _get_reservation(fake_aws, body)
    if not reservation.interruptible:
        raise ValueError(f"{reservation.id} is not interruptible")
    instance_ids = body.get("instances")
    hit = [one for one in members(environment, reservation) if instance_ids is None or one.id in instance_ids]
    reservation.total = max(0, reservation.total - len(hit))
    for instance in hit:
        warning = eventbridge.reservation_interruption(fake_aws.settings, environment.now(), instance.id)
        eventbridge.send_event(fake_aws.settings, warning)
        if not body.get("keep"):
            environment.schedule_reclaim(instance, float(body.get("notice_seconds", 120)))
    return {"instances": [instance.id for instance in hit]}


def set_group_full(fake_aws: FakeAws, body: Body) -> Any:
    """Make a placement group full, in one or all zones and partitions; `full` false ends this."""
    capacity_key = (body["id"], body.get("zone") or "*", body.get("partition"))
    if body["id"] not in fake_aws.default_environment.placement_groups:
        raise LookupError(body["id"])
    if body.get("full", True):
        fake_aws.default_environment.full_groups.add(capacity_key)
    else:
        fake_aws.default_environment.full_groups.discard(capacity_key)
    return DONE


def _get_reservation(fake_aws: FakeAws, body: Body) -> Reservation:
    fake_aws.default_environment.run_due_transitions()
    return fake_aws.default_environment.reservations[body["id"]]
