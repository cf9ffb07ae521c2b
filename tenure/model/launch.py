"""Launching: the frozen request, the group that shares one token, and what EC2 answered.

A token is a hash of the members' UIDs, the request and the attempt, all of which stand in a workflow's history: a
repeated activity repeats the call and gets the same instances.

The instance types and subnets of one launch request, and how they are written down: as tables, not one by one.

A request of 60 types in three zones has 180 overrides that repeat the same few templates, subnets and prices. A history
holds each of them once; in memory they are spelled out.

From what EC2 could not give to marks: what is not asked for again for some minutes, and how far each reaches.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from tenure.apis.labels import CAPACITY_RESERVATION_ID, CAPACITY_TYPE, INSTANCE_TYPE, RESERVED, SPOT, ZONE
from tenure.model.base import Message
from tenure.model.instance_types import Market, UnavailableOffering


class LaunchOverride(Message):
    """One instance type in one subnet, under one launch template."""

    launch_template: str
    instance_type: str
    zone: str
    subnet_id: str
    image_id: str
    priority: float
    """The offering's price in US dollars an hour."""
    reservation_id: str = ""
    """The capacity reservation that its launch template targets."""


def _written(overrides: Sequence[LaunchOverride]) -> dict[str, Any]:
    """`types` has a line for each type in turn: name, number of its template, numbers of its subnets, prices there.

    One price stands for all of a line's subnets.
    """
    templates = list(dict.fromkeys(map(_template, overrides)))
    subnets = list(dict.fromkeys(map(_subnet, overrides)))
    lines = []
    for (name, template), group in groupby(overrides, key=lambda one: (one.instance_type, _template(one))):
        ones = list(group)
        prices = [one.priority for one in ones]
        places = [subnets.index(_subnet(one)) for one in ones]
        lines.append([name, templates.index(template), places, prices[:1] if len(set(prices)) == 1 else prices])
    return {"templates": templates, "subnets": subnets, "types": lines}


def _read(written: Any) -> Any:
    """From what `_written` made; anything else is passed on as it is."""
    if not isinstance(written, dict):
        return written
    return tuple(
        LaunchOverride(
            instance_type=name,
            launch_template=written["templates"][template][0],
            image_id=written["templates"][template][1],
            reservation_id=written["templates"][template][2],
            subnet_id=written["subnets"][place][0],
            zone=written["subnets"][place][1],
            priority=price,
        )
        for name, template, places, prices in written["types"]
        for place, price in zip(places, prices if len(prices) > 1 else prices * len(places), strict=True)
    )


def _template(one: LaunchOverride) -> tuple[str, str, str]:
    return one.launch_template, one.image_id, one.reservation_id


def _subnet(one: LaunchOverride) -> tuple[str, str]:
    return one.subnet_id, one.zone


Overrides = Annotated[
    tuple[LaunchOverride, ...],
    BeforeValidator(_read),
    PlainSerializer(_written, return_type=dict[str, Any], when_used="json"),
]


class Member(Message):
    """A NodeClaim in a launch group."""

    name: str
    uid: str


class LaunchRequest(Message):
    """Everything CreateFleet is told, frozen: an attempt that is repeated says exactly the same."""

    node_class: str
    capacity_type: str
    market: Market = ""
    """The kind of reservations that a reserved launch goes into."""
    overrides: Overrides
    tags: dict[str, str]
    instance_profile: str = ""
    context: str = ""
    node_class_stamp: str = ""
    """Version and static hash of the class as it is launched from, with a slash between them."""
    placement_group: str = ""
    """Id of the group that its templates place instances in."""
    partition: str = ""
    """Number of the partition in it; empty leaves the choice to EC2."""
    prioritized: bool = False
    """Prices are what NodeOverlays say, so that EC2 is to go by them and not by its own."""


class LaunchGroup(Message):
    """NodeClaims that launch together, with one request, one attempt and so one token."""

    group_id: str
    attempt: int = 1
    pool: str = ""
    members: tuple[Member, ...]
    request: LaunchRequest
    failures: int = 0
    """Attempts before this one that failed for another reason than capacity."""

    def token(self) -> str:
        """At most 64 ASCII characters, as EC2 demands. A field that a newer version adds does not change it."""
        uids = ",".join(sorted(member.uid for member in self.members))
        request = self.request.model_dump(mode="json", exclude_defaults=True)
        said = f"{uids}\n{json.dumps(request, sort_keys=True)}\n{self.attempt}"
        return "tenure-" + hashlib.sha256(said.encode()).hexdigest()[:48]


class Launched(Message):
    """An instance that runs for one NodeClaim."""

    kind: Literal["launched"] = "launched"
    claim_uid: str
    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    image_id: str
    price: float = 0.0
    """US dollars an hour as it was launched; 0 where that is not known."""


DELETED: Final = "NodeClaimDeleted"
"""Why a NodeClaim that was deleted before its launch gets no instance."""


class LaunchRefused(Message):
    """No instance for this NodeClaim; the claim is given up and its pods are planned anew, or retried later."""

    kind: Literal["refused"] = "refused"
    reason: str
    """`InsufficientCapacity`, `NodeClassNotReady`, or a CreateError reason such as `LaunchFailed`."""
    message: str = ""
    final: bool = True
    """False: worth trying again under a new attempt before the launch deadline."""


LaunchResult = Annotated[Launched | LaunchRefused, Field(discriminator="kind")]


class LaunchPrepared(Message):
    """The request is frozen and its launch templates exist."""

    kind: Literal["prepared"] = "prepared"
    request: LaunchRequest


LaunchPreparation = Annotated[LaunchPrepared | LaunchRefused, Field(discriminator="kind")]


class FleetInstance(Message):
    """One instance of CreateFleet's answer, read back from the override that EC2 chose."""

    instance_id: str
    instance_type: str
    zone: str
    subnet_id: str
    image_id: str
    capacity_type: str
    reservation_id: str = ""
    market: Market = ""
    placement_group: str = ""
    partition: str = ""
    instance_profile: str = ""
    """As it was launched with, whatever the class says by now."""
    node_class_stamp: str = ""
    """The same, of the class itself."""


class FleetError(Message):
    """One entry of CreateFleet's Errors, classified."""

    code: str
    message: str
    instance_type: str = ""
    zone: str = ""
    subnet_id: str = ""
    capacity_type: str = ""
    reservation_id: str = ""
    placement_group: str = ""
    partition: str = ""
    insufficient: bool = False
    """True when nothing but capacity is missing (reference 2.6)."""
    scope: Literal["offering", "capacity type", "subnet", "placement group"] = "offering"
    """How much of what EC2 offers is refused by it: a type in a zone, or more."""
    reason: str = ""
    """What `Launched=Unknown` shows for it, such as `AMINotFound` or `LaunchFailed`."""
    mend: str = ""
    """What a person may do about it, where that is known."""


class FleetAnswer(Message):
    instances: tuple[FleetInstance, ...] = ()
    errors: tuple[FleetError, ...] = ()


class GroupOutcome(Message):
    """What a launch group came to. Small: instances are told to each member, not here."""

    group_id: str
    results: dict[str, LaunchResult] = {}
    """By UID, for a group that is one NodeClaim launching itself."""
    refused: tuple[Member, ...] = ()
    """Those that got no instance and are still there, in the recorded order."""
    refusal: LaunchRefused | None = None
    """Why, the same for all of them."""
    unavailable: tuple[UnavailableOffering, ...] = ()
    fleet_calls: int = 1


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
