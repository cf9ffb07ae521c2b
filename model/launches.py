"""Launching: the frozen request, the group that shares one token, and what EC2 answered.

A token is a hash of the members' UIDs, the request and the attempt, all of which stand in a workflow's history: a
repeated activity repeats the call and gets the same instances.
"""

import hashlib
import json
from typing import Annotated, Final, Literal

from pydantic import Field

from model.base import Message
from model.catalogue import Market, UnavailableOffering
from model.overrides import LaunchOverride as LaunchOverride
from model.overrides import Overrides


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
