"""Launches: the frozen request, the launch group that shares one client token, EC2's result, and rejections.

A token is a hash of the members' UIDs, the request and the attempt, all recorded in workflow history. A retried
activity therefore repeats the same call and gets the same instances. Overrides are serialized as tables, since 60 types
in three zones repeat the same few templates, subnets and prices.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from tenure.apis.labels import CAPACITY_RESERVATION_ID, CAPACITY_TYPE, INSTANCE_TYPE, RESERVED, SPOT, ZONE
from tenure.model.base import Message, instance_id_of
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY, DiscoveredCapacity
from tenure.model.instance_types import Market, UnavailableOffering

JOINED_PREFIX: Final = "joined-"
"""Begins the IDs of launch groups that no plan created; the ID of another group begins with that of its plan."""


class LaunchOverride(Message):
    launch_template: str
    instance_type: str
    zone: str
    subnet_id: str
    image_id: str
    priority: float
    """The offering's price in US dollars an hour."""
    reservation_id: str = ""


def _serialize_overrides(overrides: Sequence[LaunchOverride]) -> dict[str, Any]:
    """`types` has one row per type: its name, the index of its template, the indexes of its subnets, and its prices.

    A single price applies to all subnets of the row.
    """
    templates = list(dict.fromkeys(map(_template_key, overrides)))
    subnets = list(dict.fromkeys(map(_subnet_key, overrides)))
    lines = []
    for (name, template), group in groupby(overrides, key=lambda one: (one.instance_type, _template_key(one))):
        ones = list(group)
        prices = [one.priority for one in ones]
        subnet_indexes = [subnets.index(_subnet_key(one)) for one in ones]
        lines.append([name, templates.index(template), subnet_indexes, prices[:1] if len(set(prices)) == 1 else prices])
    return {"templates": templates, "subnets": subnets, "types": lines}


def _parse_overrides(written: Any) -> Any:
    """Parse the result of `_serialize_overrides`; return any other value unchanged."""
    if not isinstance(written, dict):
        return written
    return tuple(
        LaunchOverride(
            instance_type=name,
            launch_template=written["templates"][template][0],
            image_id=written["templates"][template][1],
            reservation_id=written["templates"][template][2],
            subnet_id=written["subnets"][subnet_index][0],
            zone=written["subnets"][subnet_index][1],
            priority=price,
        )
        for name, template, subnet_indexes, prices in written["types"]
        for subnet_index, price in zip(
            subnet_indexes, prices if len(prices) > 1 else prices * len(subnet_indexes), strict=True
        )
    )


def _template_key(one: LaunchOverride) -> tuple[str, str, str]:
    return one.launch_template, one.image_id, one.reservation_id


def _subnet_key(one: LaunchOverride) -> tuple[str, str]:
    return one.subnet_id, one.zone


Overrides = Annotated[
    tuple[LaunchOverride, ...],
    BeforeValidator(_parse_overrides),
    PlainSerializer(_serialize_overrides, return_type=dict[str, Any], when_used="json"),
]


class LaunchGroupMember(Message):
    name: str
    uid: str


class LaunchRequest(Message):
    """The complete, frozen CreateFleet input. A retry sends the same request."""

    node_class: str
    capacity_type: str
    market: Market = ""
    overrides: Overrides
    tags: dict[str, str]
    instance_profile: str = ""
    context: str = ""
    node_class_stamp: str = ""
    """Hash version and static hash of the class at launch, separated by a slash."""
    placement_group: str = ""
    partition: str = ""
    prioritized: bool = False
    """Prices come from NodeOverlays, so EC2 must use them rather than its own."""


class LaunchGroup(Message):
    """NodeClaims that launch together: one request, one attempt, and therefore one client token."""

    group_id: str
    attempt: int = 1
    pool: str = ""
    members: tuple[LaunchGroupMember, ...]
    request: LaunchRequest
    failures: int = 0
    discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY
    """Set only for the call; not part of the token."""
    resumed: bool = False
    """Set only for the call: an earlier run of the workflow may have assigned instances."""

    def client_token(self) -> str:
        """At most 64 ASCII characters, EC2's limit. A new field with its default value does not change the token."""
        uids = ",".join(sorted(member.uid for member in self.members))
        request = self.request.model_dump(mode="json", exclude_defaults=True)
        text = f"{uids}\n{json.dumps(request, sort_keys=True)}\n{self.attempt}"
        return "tenure-" + hashlib.sha256(text.encode()).hexdigest()[:48]


class LaunchedInstance(Message):
    kind: Literal["launched"] = "launched"
    claim_uid: str
    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    image_id: str
    price: float = 0.0
    """US dollars an hour at launch; 0 if unknown."""

    @property
    def instance_id(self) -> str:
        return instance_id_of(self.provider_id)


REPEATED_FAILURES: Final = 2
"""Failed attempts of a launch, with pauses between them, from which on `LaunchFailed` blocks its NodeClaims."""
DELETED: Final = "NodeClaimDeleted"
"""Rejection reason of a NodeClaim that was deleted before its launch."""


class LaunchRejection(Message):
    """No instance for this NodeClaim: the claim is deleted and its pods are rescheduled, or the launch is retried."""

    kind: Literal["refused"] = "refused"
    reason: str
    """`InsufficientCapacity`, `NodeClassNotReady`, or a CreateError reason such as `LaunchFailed`."""
    message: str = ""
    final: bool = True
    """False: a new attempt may succeed before the launch deadline."""

    def describe(self) -> str:
        return f"{self.reason}: {self.message}"


LaunchResult = Annotated[LaunchedInstance | LaunchRejection, Field(discriminator="kind")]


class PreparedLaunchRequest(Message):
    kind: Literal["prepared"] = "prepared"
    request: LaunchRequest


LaunchPreparation = Annotated[PreparedLaunchRequest | LaunchRejection, Field(discriminator="kind")]


class FleetInstance(Message):
    """An instance in CreateFleet's response, with the fields of the override that EC2 chose."""

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
    """The instance profile at launch; the EC2NodeClass may have another one now."""
    node_class_stamp: str = ""


class FleetError(Message):
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
    """True if the only cause is missing capacity (reference 2.6)."""
    scope: Literal["offering", "capacity type", "subnet", "placement group"] = "offering"
    """The scope of the error: one type in one zone, or more."""
    reason: str = ""
    """The reason of `Launched=Unknown`, such as `AMINotFound` or `LaunchFailed`."""
    remedy: str = ""


class FleetResult(Message):
    instances: tuple[FleetInstance, ...] = ()
    errors: tuple[FleetError, ...] = ()


class GroupOutcome(Message):
    """Result of a launch group, in short form: each member gets its instance by signal."""

    group_id: str
    results: dict[str, LaunchResult] = {}
    rejected: tuple[LaunchGroupMember, ...] = ()
    """Members without an instance whose NodeClaim still exists, in the recorded order."""
    rejection: LaunchRejection | None = None
    unavailable: tuple[UnavailableOffering, ...] = ()


UNAVAILABLE_FOR = timedelta(minutes=3)
"""Each new rejection restarts it (reference 2.3); so does each interruption (5.3)."""
INTERRUPTED = "Interrupted"
_ANY = "*"


def list_unavailable_offerings(
    errors: Iterable[FleetError], node_class: str, now: datetime
) -> tuple[UnavailableOffering, ...]:
    """The unavailable offerings of insufficient capacity errors, without duplicates, in a fixed order.

    An error that does not name its offering is ignored.
    """
    found = {
        _offering_key(offering): offering
        for error in errors
        if error.insufficient and (offering := _to_unavailable_offering(error, node_class, now))
    }
    return tuple(found[key] for key in sorted(found))


def interrupted_offering(labels: Mapping[str, str], at: datetime) -> UnavailableOffering | None:
    """The capacity pool of an interrupted node with these labels (reference 5.3): its type and zone as spot, or its
    reservation.

    None if labels are missing, or the node is neither spot nor reserved.
    """
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


def latest_unavailable_offerings(
    unavailable_offerings: Iterable[UnavailableOffering], now: datetime
) -> tuple[UnavailableOffering, ...]:
    """The latest entry for each offering, without expired entries."""
    found: dict[tuple[str, ...], UnavailableOffering] = {}
    for offering in unavailable_offerings:
        known = found.get(_offering_key(offering))
        if offering.until > now and (known is None or known.until < offering.until):
            found[_offering_key(offering)] = offering
    return tuple(found.values())


def _to_unavailable_offering(error: FleetError, node_class: str, now: datetime) -> UnavailableOffering | None:
    offering = UnavailableOffering(
        instance_type=_ANY,
        zone=_ANY,
        capacity_type=error.capacity_type,
        until=now + UNAVAILABLE_FOR,
        reason=error.code,
        node_class=node_class,
    )
    match error.scope:
        case "capacity type":
            return offering.model_copy(update={"node_class": ""})
        case "subnet" if error.subnet_id:
            changes = {"zone": error.zone or _ANY, "capacity_type": _ANY, "subnet_id": error.subnet_id}
            return offering.model_copy(update=changes)
        case "placement group" if error.placement_group and error.zone:
            changes = {"zone": error.zone, "capacity_type": _ANY, "placement_group": error.placement_group}
            return offering.model_copy(update=changes)
        case "offering" if error.instance_type and error.zone:
            return offering.model_copy(update=_offering_fields(error))
        case _:
            return None


def _offering_fields(error: FleetError) -> dict[str, str]:
    """An error of a request with a placement group, a partition or a reservation applies to that EC2NodeClass only."""
    restrictions = {
        "reservation_id": error.reservation_id,
        "placement_group": error.placement_group,
        "partition": error.partition,
    }
    everywhere = {} if any(restrictions.values()) else {"node_class": ""}
    return {"instance_type": error.instance_type, "zone": error.zone, **restrictions, **everywhere}


def _offering_key(offering: UnavailableOffering) -> tuple[str, ...]:
    return (
        offering.capacity_type,
        offering.instance_type,
        offering.zone,
        offering.subnet_id,
        offering.reservation_id,
        offering.placement_group,
        offering.partition,
        offering.node_class,
    )
