"""Input and result of planning."""

from datetime import datetime, timedelta

from tenure.model.base import Message, Value
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.facts import Expression, Taint
from tenure.model.instance_types import OfferingShard, UnavailableOffering
from tenure.model.launch import LaunchGroupMember


class PlannedNodeClaim(Value):
    """A NodeClaim to be made: everything but its name, which is derived from the plan's id."""

    pool: str
    pool_uid: str
    node_class: str
    labels: dict[str, str]
    annotations: dict[str, str]
    requirements: tuple[Expression, ...]
    requests: dict[str, int]
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    termination_grace_period: str = ""
    node_class_group: str = "karpenter.k8s.aws"
    node_class_kind: str = "EC2NodeClass"
    pods: tuple[str, ...] = ()
    """UIDs of the pods that it is bought for."""
    capacity_bound: dict[str, int] = {}
    """The largest capacity of any of its instance types, counted against the pool's limits."""
    why: str = ""


class UnschedulablePod(Value):
    pod_uid: str
    namespace: str
    name: str
    reason: str


class Plan(Value):
    claims: tuple[PlannedNodeClaim, ...] = ()
    nominations: dict[str, str] = {}
    """Pod UID to the name of the node or NodeClaim, existing already, that it is expected on."""
    reserved: dict[str, str] = {}
    """The same for virtual pods of CapacityBuffers that have room. The others are not listed."""
    unschedulable: tuple[UnschedulablePod, ...] = ()
    seconds: float = 0.0


class PlanRequest(Message):
    """One pass of provisioning. The same id always gives the same NodeClaim names."""

    plan_id: str
    unavailable: tuple[UnavailableOffering, ...] = ()
    burst_ends_at: datetime | None = None
    discovered: DiscoveredCapacity = DiscoveredCapacity()
    """Discovered capacity, including that of deleted nodes: the planner host adds its own observations."""


class LaunchDraft(Message):
    """NodeClaims of one plan that ask for the same thing and launch together."""

    group_id: str
    pool: str
    node_class: str
    members: tuple[LaunchGroupMember, ...]
    """Sorted by UID: the recorded order in which instances are handed out."""
    attempt: int = 1
    failures: int = 0
    why: str = ""
    offering_shard: OfferingShard | None = None
    """From which capacity pools the first attempt asks; None: from all."""
    joined: bool = False
    """Another request created its members, so that nothing is known of them yet."""


class PlanOutcome(Message):
    """Summary of a pass: names and counts, never pods."""

    plan_id: str
    drafts: tuple[LaunchDraft, ...] = ()
    created: int = 0
    nominated: int = 0
    unschedulable: int = 0
    blocked: str = ""
    planned_at: datetime | None = None


class PhaseDurations(Message):
    """None where nothing is known."""

    launch: timedelta | None = None
    registration: timedelta | None = None
    initialization: timedelta | None = None


class ExpectedDurations(Message):
    """By instance type, or for any other."""

    by_type: dict[str, PhaseDurations] = {}
    default: PhaseDurations = PhaseDurations()
