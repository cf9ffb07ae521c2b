"""Signals of the cluster cache: the facts that the phases decide on.

Observations carry a number that only rises (the host's clock in nanoseconds). A workflow drops older ones, so repeated
and reordered signals are harmless.
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
"""Fields ignored when two observations are compared."""


class ObservedNodeClaim(Message):
    """The digest of a NodeClaim, its Node and the pods on it. Equal digests are not sent twice."""

    number: int = 0
    """Rises with every observation; not compared."""
    exists: bool = True
    """False: the NodeClaim is gone from the API server."""
    deleting: bool = False
    disruption: str = ""
    """Reason of its deletion, if its NodeClaim names one; not compared."""
    provider_id: str = ""
    node_name: str = ""
    """The Node whose spec.providerID is this claim's; empty while there is none."""
    node_count: int = 0
    """More than one Node with this provider id is an error that registration reports."""
    node_ready: bool = False
    ready_since: datetime | None = None
    """When the Node last became Ready; not compared."""
    not_ready_since: datetime | None = None
    """When an initialized node became NotReady, got a temporary taint, or lost a device that its NodeClaim requests;
    None if healthy."""
    not_ready_reason: str = ""
    """Which of these: `NotReady`, the taints as `key:effect`, `nvidia.com/gpu is not allocatable`."""
    waiting_for: tuple[str, ...] = ()
    """Remaining blockers of initialization: startup taints, ephemeral taints, resources, in the reference's order."""
    boot_id: str = ""
    empty: bool = False
    """No pod on the node that would have to go elsewhere, and none nominated to it."""
    empty_since: datetime | None = None
    """When it became so: the last such pod's end, or the end of a nomination. None while not empty."""
    empty_since_unseen: bool = False
    """The cache is younger than the empty interval: the node was already empty when the watch began. The recorded
    start holds."""
    draining_pods: int = 0
    """Pods that a drain still waits for; counted only while deleting."""
    attached_volumes: int = 0
    do_not_disrupt: bool = False
    consolidation: str = ""
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
    """LifecyclePolicy rules for the NodePool's nodes; None without a policy."""
    event_policies: dict[str, str] = {}
    """By kind of AWS's events: the names of the policies that say something of it."""
    hook_policies: dict[str, str] = {}
    """By point: the name of the policy whose hooks count."""
    events_unread: str = ""
    """Invalid rules for AWS events: the policy, the field and the remedy."""
    pause: str = ""
    """The annotation tenure.sh/pause of the NodeClaim, or else of its Node."""

    expected: ExpectedDurations | None = None
    """Expected startup durations, sent with the next signal; not compared."""

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
    """LifecyclePolicy rules for rollouts; None without a policy."""
    static: Literal["", "off", "on"] = ""
    """`on`: a static pool; `off`: a static pool while the gate StaticCapacity is off. The fields below apply to `on`
    only."""
    replicas: int = 0
    existing: int = 0
    terminating: int = 0
    pause: str = ""
    """The annotation tenure.sh/pause of the NodePool, ..."""
    cluster_pause: str = ""
    """... and that of the worker's namespace, which is for the whole cluster."""
    rules: DisruptionRules | None = None
    """LifecyclePolicy rules for voluntary disruption; None without a policy."""
    unread: InvalidRules = InvalidRules()
    """Invalid LifecyclePolicy fields."""
    freed: int = 0
    """Another one whenever its budgets may leave more than before, while some of its nodes may wish to go."""

    def is_headroom_only(self, before: "ObservedNodePool") -> bool:
        """Only the headroom changed; the status is the same."""
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
    """Signal to Provisioning: offerings that EC2 could not provide to a self-launching NodeClaim, or interrupted."""

    unavailable: tuple[UnavailableOffering, ...]
    burst_ends_at: datetime | None = None
    """End of an interruption burst, during which replacements are spread."""


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
    """When the NodePool or its NodeClass last changed: earlier endings no longer count."""
    generation: int = 0
    class_generation: int = 0
