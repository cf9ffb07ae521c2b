"""What the watch reports by signal: that something changed, and the few facts a phase decides on.

Observations carry a number that only rises (the host's clock in nanoseconds); a workflow drops older ones, so
repeated and reordered signals are harmless.
"""

from datetime import datetime
from typing import Final, Literal

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules, RolloutRules
from tenure.model.base import Message
from tenure.model.instance_types import UnavailableOffering
from tenure.model.node_health import UnhealthyCondition
from tenure.model.operator_requests import InvalidRules
from tenure.model.plan import ExpectedDurations

UNCOMPARED: Final = {"number", "ready_since", "expected", "disruption"}
"""What an observation may differ in and yet be no news."""


class ObservedNodeClaim(Message):
    """The digest of a NodeClaim, its Node and the pods on it. Equal digests are not sent twice."""

    number: int = 0
    """Rises with every observation; not part of what is compared."""
    exists: bool = True
    """False: the NodeClaim is gone from the API server."""
    deleting: bool = False
    disruption: str = ""
    """Why it is being deleted, where its NodeClaim says so; not part of what is compared."""
    provider_id: str = ""
    node_name: str = ""
    """The Node whose spec.providerID is this claim's; empty while there is none."""
    node_count: int = 0
    """More than one Node with this provider id is an error that registration reports."""
    node_ready: bool = False
    ready_since: datetime | None = None
    """When the Node last became Ready; not part of what is compared."""
    not_ready_since: datetime | None = None
    """Since when an initialized node is NotReady, under a taint that will pass, or without a device that its NodeClaim
    asks for; None for one that is well."""
    not_ready_reason: str = ""
    """Which of these: `NotReady`, the taints as `key:effect`, `nvidia.com/gpu is not allocatable`."""
    waiting_for: tuple[str, ...] = ()
    """What still holds up initialization: startup taints, ephemeral taints, resources, in the reference's order."""
    boot_id: str = ""
    empty: bool = False
    """No pod on the node that would have to go elsewhere, and none nominated to it."""
    empty_since: datetime | None = None
    """When it became so: the last such pod's end, or the end of a nomination. None while not empty."""
    empty_since_unseen: bool = False
    """The watch is newer than that: it only knows that the node was empty when it began. What was known goes on."""
    draining_pods: int = 0
    """Pods that a drain still waits for; counted only while deleting."""
    attached_volumes: int = 0
    do_not_disrupt: bool = False
    policy: str = ""
    """`<consolidationPolicy>/<consolidateAfter>` of the NodePool, such as `WhenEmpty/30s`; empty without a pool."""
    drift: str = ""
    """The reason for which a launched node has drifted, such as `AMIDrift`."""
    drift_message: str = ""
    needed_by_buffer: str = ""
    """The CapacityBuffer, with its namespace, that needs the room on a node that would be empty without it."""
    awaited_pods: str = ""
    """The pods that a node that would be empty without them has waited for, for a while, and why they are not there."""
    unhealthy: tuple[UnhealthyCondition, ...] = ()
    """The Node's conditions that repair counts at present; none while the gate NodeRepair is off."""
    rules: LifecycleRules | None = None
    """What LifecyclePolicies say of its NodePool's nodes; None where none says anything."""
    event_policies: dict[str, str] = {}
    """By kind of AWS's events: the names of the policies that say something of it."""
    events_unread: str = ""
    """What they say of AWS's events and nobody can read: which policy and field, and what to write."""
    pause: str = ""
    """The annotation tenure.sh/pause of the NodeClaim, or else of its Node."""

    expected: ExpectedDurations | None = None
    """How long its start-up may take before it is slow, told with what is told anyhow; not part of what is compared."""

    def differs_from(self, other: "ObservedNodeClaim | None") -> bool:
        return other is None or self.model_dump(exclude=UNCOMPARED) != other.model_dump(exclude=UNCOMPARED)


class ObservedDemand(Message):
    """There are pods that cannot be placed and that no earlier pass has answered."""

    number: int = 0
    pods: int
    newest_pod_at: datetime
    """When the newest of them was first seen: the batch window is measured from it."""
    at_once: bool = False
    """Some of them lost the place that an earlier plan gave them: they have waited in a batch before."""


class ObservedNodePool(Message):
    number: int = 0
    exists: bool = True
    generation: int = 0
    usage: str = ""
    node_class: str = ""
    node_class_ready: str = ""
    class_generation: int = 0
    registered: int = 0
    stamps: str = ""
    """Versions of the static hash that are not ours, found on the pool or its NodeClaims; empty when all is well."""
    deleting: bool = False
    rollout: RolloutRules | None = None
    """What LifecyclePolicies say of roll-outs there; None where none says anything."""
    static: Literal["", "off", "on"] = ""
    """`on`: a static pool; `off`: likewise, and the gate StaticCapacity is off. What follows is told of `on` alone."""
    replicas: int = 0
    existing: int = 0
    terminating: int = 0
    pause: str = ""
    """The annotation tenure.sh/pause of the NodePool, ..."""
    cluster_pause: str = ""
    """... and that of the worker's namespace, which is for the whole cluster."""
    rules: DisruptionRules | None = None
    """What LifecyclePolicies say of voluntary disruption there; None where none says anything."""
    unread: InvalidRules = InvalidRules()
    """What they say of it and nobody can read."""
    freed: int = 0
    """Another one whenever its budgets may leave more than before, while some of its nodes may wish to go."""

    def is_headroom_only(self, before: "ObservedNodePool") -> bool:
        """Nothing else is new: its status is as it was."""
        same = {"number": self.number, "freed": self.freed}
        return self.freed != before.freed and before.model_copy(update=same) == self


class ObservedNodeClass(Message):
    """An EC2NodeClass changed, or the number of NodeClaims that hold it."""

    number: int = 0
    exists: bool = True
    generation: int = 0
    deleting: bool = False
    claims: int = 0
    stamps: str = ""


class LaunchGroupJoinRequest(Message):
    """Signal to Provisioning: a NodeClaim that no plan made, and that may launch with others that are alike."""

    name: str
    uid: str
    pool: str
    node_class: str
    launch_hash: str


class ObservedUnavailableOfferings(Message):
    """Signal to Provisioning: what EC2 could not give to a NodeClaim that launches itself, or took back."""

    unavailable: tuple[UnavailableOffering, ...]
    burst_ends_at: datetime | None = None
    """Until when AWS takes back so many nodes that what replaces them is spread."""


class StartupOutcome(Message):
    """The end of one NodeClaim's start. Also a signal to the NodePool's workflow, from one that failed."""

    uid: str
    at: datetime
    registered: bool = False
    reason: str = ""
    message: str = ""


class Registrations(Message):
    outcomes: tuple[StartupOutcome, ...] = ()
    """The last few, oldest first."""
    since: datetime | None = None
    """When the NodePool or its NodeClass last changed: what ended before counts no more."""
    generation: int = 0
    class_generation: int = 0
