"""Input and result of planning."""

from datetime import datetime, timedelta
from typing import Final

from tenure.model.base import Message, Value
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.facts import Expression, Taint
from tenure.model.instance_types import OfferingShard, UnavailableOffering
from tenure.model.launch import LaunchGroupMember

UNUSED_NODE_LIMIT: Final = 3
"""Unused nodes after which further launches wait."""
FIRST_BACKOFF: Final = timedelta(minutes=1)
MAX_BACKOFF: Final = timedelta(hours=1)
BACKOFF_RETENTION: Final = timedelta(hours=2)
"""How long an entry is kept after the last unused node."""
MAX_BACKOFFS: Final = 500
MAX_RELEASED_PODS: Final = 200
"""Stored for the next process."""
MAX_COUNTED_NODECLAIMS: Final = 100
"""Names of NodeClaims per entry."""
_MAX_NAMED: Final = 3


class PlannedNodeClaim(Value):
    """A NodeClaim to create. Its name is derived from the plan's ID."""

    pool: str
    pool_uid: str
    node_class: str
    labels: dict[str, str]
    annotations: dict[str, str]
    requirements: tuple[Expression, ...]
    requests: dict[str, int]
    devices: dict[str, int] = {}
    """Amounts of DRA devices that its pods need. The object has only the names of their drivers."""
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    termination_grace_period: str = ""
    node_class_group: str = "karpenter.k8s.aws"
    node_class_kind: str = "EC2NodeClass"
    pods: tuple[str, ...] = ()
    """UIDs of the pods that it is created for."""
    virtual_pods: tuple[str, ...] = ()
    """UIDs of the virtual pods of CapacityBuffers that it is created for."""
    capacity_bound: dict[str, int] = {}
    """By resource, the largest capacity of its instance types; counted against the NodePool's limits."""
    why: str = ""


class UnschedulablePod(Value):
    pod_uid: str
    namespace: str
    name: str
    reason: str
    code: str
    """Of `tenure/model/blockers.py`."""


class Plan(Value):
    claims: tuple[PlannedNodeClaim, ...] = ()
    nominations: dict[str, str] = {}
    """By pod UID, the existing node or NodeClaim that the pod is expected on."""
    reserved: dict[str, str] = {}
    """The same for virtual pods of CapacityBuffers that fit on existing nodes; the others are not listed."""
    unschedulable: tuple[UnschedulablePod, ...] = ()
    seconds: float = 0.0


class ProvisioningBackoff(Message):
    """Nodes that registered for a group of equal pods, of which none was bound to them. Launches for the group
    wait from UNUSED_NODE_LIMIT on."""

    pod_group: str
    """As in the NodeClaims' annotation `tenure.sh/pod-groups`."""
    pod: str
    """One of its pods as `namespace/name`."""
    pods: int = 0
    """Number of pods for which no node is launched now."""
    unused_nodes: int = 0
    nodeclaims: tuple[str, ...] = ()
    """The counted NodeClaims; none is counted twice, even after a reset."""
    since: datetime
    last_unused_at: datetime
    context: str = ""
    """Hash of the objects that plans for the group depend on. A change resets the count."""
    scheduler_message: str = ""
    """The message with which kube-scheduler explains why the pod is pending."""

    @property
    def until(self) -> datetime | None:
        """When the next node may be launched for the group; None before the limit is reached."""
        excess = self.unused_nodes - UNUSED_NODE_LIMIT
        if excess < 0:
            return None
        return self.last_unused_at + min(MAX_BACKOFF, FIRST_BACKOFF * (1 << min(excess, 10)))

    def is_active(self, now: datetime) -> bool:
        return self.until is not None and now < self.until

    def describe(self) -> str:
        """For events, `tenure why` and `tenure stuck`. Changes only with the entry."""
        named = ", ".join(self.nodeclaims[-_MAX_NAMED:])
        scheduler = f"; kube-scheduler: {self.scheduler_message}" if self.scheduler_message else ""
        until = f"{self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else "now"
        return (
            f"{self.unused_nodes} nodes were launched for this pod and registered, and kube-scheduler did not bind "
            f"it to any of them ({named}){scheduler}; the next node is launched after {until}, or when the pod, its "
            "volumes, a NodePool that accepts it, or the EC2NodeClass or a DaemonSet of that NodePool changes"
        )


def select_retained(entries: tuple[ProvisioningBackoff, ...], now: datetime) -> tuple[ProvisioningBackoff, ...]:
    """The entries to store: not older than BACKOFF_RETENTION, at most MAX_BACKOFFS, the latest."""
    recent = [one for one in entries if now < one.last_unused_at + BACKOFF_RETENTION]
    recent.sort(key=lambda one: (one.last_unused_at, one.pod_group))
    return tuple(sorted(recent[-MAX_BACKOFFS:], key=lambda one: one.pod_group))


class ReleasedPod(Message):
    """A pod that plans leave out, since its scheduler did not bind it to its ready node.

    It is planned again when the message of its scheduler differs from `scheduler_message`."""

    uid: str
    scheduler_message: str
    why: str
    since: datetime


class PlanRequest(Message):
    """One provisioning pass. The same ID always yields the same NodeClaim names."""

    plan_id: str
    unavailable: tuple[UnavailableOffering, ...] = ()
    burst_ends_at: datetime | None = None
    backoffs: tuple[ProvisioningBackoff, ...] = ()
    released: tuple[ReleasedPod, ...] = ()
    """By earlier plans; the first plan of a process reads them."""
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
    backoffs: tuple[ProvisioningBackoff, ...] | None = None
    """All entries to store; None keeps the stored ones."""
    released: tuple[ReleasedPod, ...] | None = None
    """As `backoffs`."""


class PhaseDurations(Message):
    """None if unknown."""

    launch: timedelta | None = None
    registration: timedelta | None = None
    initialization: timedelta | None = None


class ExpectedDurations(Message):
    """`default` applies to instance types without an entry in `by_type`."""

    by_type: dict[str, PhaseDurations] = {}
    default: PhaseDurations = PhaseDurations()
