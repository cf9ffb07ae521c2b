"""Input and result of planning."""

from datetime import datetime, timedelta

from tenure.model.base import Message, Value
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.facts import Expression, Taint
from tenure.model.instance_types import OfferingShard, UnavailableOffering
from tenure.model.launch import LaunchGroupMember
from tenure.model.provisioning_backoff import ProvisioningBackoff


class PlannedNodeClaim(Value):
    """A NodeClaim to create. Its name is derived from the plan's ID."""

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
    """UIDs of the pods that it is created for."""
    capacity_bound: dict[str, int] = {}
    """By resource, the largest capacity of its instance types; counted against the NodePool's limits."""
    why: str = ""


class UnschedulablePod(Value):
    pod_uid: str
    namespace: str
    name: str
    reason: str


class Plan(Value):
    claims: tuple[PlannedNodeClaim, ...] = ()
    nominations: dict[str, str] = {}
    """By pod UID, the existing node or NodeClaim that the pod is expected on."""
    reserved: dict[str, str] = {}
    """The same for virtual pods of CapacityBuffers that fit on existing nodes; the others are not listed."""
    unschedulable: tuple[UnschedulablePod, ...] = ()
    seconds: float = 0.0


class PlanRequest(Message):
    """One provisioning pass. The same ID always yields the same NodeClaim names."""

    plan_id: str
    unavailable: tuple[UnavailableOffering, ...] = ()
    burst_ends_at: datetime | None = None
    backoffs: tuple[ProvisioningBackoff, ...] = ()
    discovered: DiscoveredCapacity = DiscoveredCapacity()
    """Includes capacity of deleted nodes. The planner host adds its own observations."""


class LaunchDraft(Message):
    """NodeClaims of one plan with equal specs, which launch together."""

    group_id: str
    pool: str
    node_class: str
    members: tuple[LaunchGroupMember, ...]
    """Sorted by UID; instances are assigned in this recorded order."""
    attempt: int = 1
    failures: int = 0
    why: str = ""
    offering_shard: OfferingShard | None = None
    """The capacity pools of the first attempt; None: all."""
    joined: bool = False
    """No plan created the members, so their specs must be read first."""


class PlanOutcome(Message):
    """Summary of a pass: names and counts, but no pods."""

    plan_id: str
    drafts: tuple[LaunchDraft, ...] = ()
    created: int = 0
    nominated: int = 0
    unschedulable: int = 0
    blocked: str = ""
    planned_at: datetime | None = None
    backoffs: tuple[ProvisioningBackoff, ...] | None = None
    """All entries to store; None keeps the stored ones."""


class PhaseDurations(Message):
    """None if unknown."""

    launch: timedelta | None = None
    registration: timedelta | None = None
    initialization: timedelta | None = None


class ExpectedDurations(Message):
    """`default` applies to instance types without an entry in `by_type`."""

    by_type: dict[str, PhaseDurations] = {}
    default: PhaseDurations = PhaseDurations()
