"""Signals of the cluster cache: the facts for the decisions of the phases.

Observations have an increasing number (the host's clock in nanoseconds). A workflow ignores older ones, so repeated and
reordered signals are harmless.
"""

from datetime import datetime
from typing import Final, Literal

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules, RolloutRules
from tenure.model.base import Message
from tenure.model.instance_types import UnavailableOffering
from tenure.model.node_health import RepairMode, UnhealthyCondition
from tenure.model.operator_requests import InvalidRules
from tenure.model.plan import ExpectedDurations

UNCOMPARED: Final = {"number", "ready_since", "expected", "disruption"}
"""Fields ignored when two observations are compared."""


class ObservedNodeClaim(Message):
    """The digest of a NodeClaim, its Node and its pods. An unchanged digest is not sent again."""

    number: int = 0
    """Increases with every observation; not compared."""
    exists: bool = True
    """False: the NodeClaim is gone from the API server."""
    deleting: bool = False
    disruption: str = ""
    """Reason of its deletion, if the NodeClaim has one; not compared."""
    provider_id: str = ""
    node_name: str = ""
    """The Node with the NodeClaim's provider ID; empty if there is none."""
    node_count: int = 0
    """Number of Nodes with this provider ID. More than one is an error that registration reports."""
    node_ready: bool = False
    ready_since: datetime | None = None
    """When the Node last became Ready; not compared."""
    not_ready_since: datetime | None = None
    """When an initialized node became NotReady, got a temporary taint, or lost a device that its NodeClaim requests;
    None if healthy."""
    not_ready_reason: str = ""
    """`NotReady`, the taints as `key:effect`, or for example `nvidia.com/gpu is not allocatable`."""
    waiting_for: tuple[str, ...] = ()
    """Remaining blockers of initialization: startup taints, ephemeral taints, resources, in Karpenter's order."""
    boot_id: str = ""
    registration_gaps: tuple[str, ...] = ()
    """What registration would change on the Node of a registered NodeClaim."""
    empty: bool = False
    """No pod on the node must be rescheduled, and no pod is nominated to it."""
    empty_since: datetime | None = None
    """When the last such pod or nomination ended; None if not empty."""
    empty_since_unseen: bool = False
    """The node was already empty when the watch began, so a recorded `empty_since` applies instead."""
    hold_until: datetime | None = None
    """A new host has not planned yet, and pods may need the empty node. It is kept until this time at most."""
    drain: str = ""
    """A hash of what a blocked drain waits for, such as pods and their budgets; empty while it is not blocked."""
    do_not_disrupt: bool = False
    maintenance: str = ""
    """The lifecycle conditions that another controller has set on the Node, for which it is left alone."""
    consolidation: str = ""
    """`<consolidationPolicy>/<consolidateAfter>` of the NodePool, such as `WhenEmpty/30s`; empty without a NodePool."""
    drift: str = ""
    """The drift reason of a launched node, such as `AMIDrift`."""
    drift_message: str = ""
    needed_by_buffer: str = ""
    """The CapacityBuffer that needs the capacity of an otherwise empty node, as `namespace/name`."""
    awaited_pods: str = ""
    """Pods that an otherwise empty node has expected for some time, and why they do not run there."""
    unhealthy: tuple[UnhealthyCondition, ...] = ()
    """The Node's conditions that repair counts now; empty if the gate NodeRepair is off."""
    repair_mode: RepairMode = "legacy"
    """Only with unhealthy conditions."""
    do_not_repair: bool = False
    """The Node has the annotation do-not-repair. Only with unhealthy conditions."""
    rules: LifecycleRules | None = None
    """LifecyclePolicy rules for the NodePool's nodes; None without a policy."""
    event_policies: dict[str, str] = {}
    """By kind of AWS event: the names of the policies with a rule for it."""
    hook_policies: dict[str, str] = {}
    """By hook point: the name of the policy whose hooks apply."""
    events_unread: str = ""
    """Invalid rules for AWS events: the policy, the field and the remedy."""
    pause: str = ""
    """The annotation tenure.sh/pause of the NodeClaim or, without one, of its Node."""

    expected: ExpectedDurations | None = None
    """Expected startup durations, sent with the next signal; not compared."""

    def differs_from(self, other: "ObservedNodeClaim | None") -> bool:
        return other is None or self.model_dump(exclude=UNCOMPARED) != other.model_dump(exclude=UNCOMPARED)


class ObservedDemand(Message):
    """Pending pods that no earlier pass has planned."""

    number: int = 0
    pods: int
    newest_pod_at: datetime
    """When the newest of them was first seen. The batch window starts then."""
    at_once: bool = False
    """Do not wait for a batch: some of the pods lost the node of an earlier plan, and have already waited."""


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
    """Other versions of the static hash on the NodePool or its NodeClaims; empty if all have this build's version."""
    deleting: bool = False
    rollout: RolloutRules | None = None
    """LifecyclePolicy rules for rollouts; None without a policy."""
    static: Literal["", "off", "on"] = ""
    """`on`: a static NodePool; `off`: a static NodePool while the gate StaticCapacity is off.

    `replicas`, `existing` and `terminating` are set only for `on`.
    """
    replicas: int = 0
    existing: int = 0
    terminating: int = 0
    pause: str = ""
    """The annotation tenure.sh/pause of the NodePool."""
    cluster_pause: str = ""
    """The annotation tenure.sh/pause of the worker's namespace, which pauses the whole cluster."""
    rules: DisruptionRules | None = None
    """LifecyclePolicy rules for voluntary disruption; None without a policy."""
    unread: InvalidRules = InvalidRules()
    """Invalid LifecyclePolicy fields."""
    freed: int = 0
    """Changes whenever its budgets may allow more disruptions than before, and some of its nodes may need them."""

    def is_headroom_only(self, before: "ObservedNodePool") -> bool:
        """Only the headroom changed; the status is the same."""
        return self._is_only_change("freed", before)

    def is_usage_only(self, before: "ObservedNodePool") -> bool:
        """Only the usage changed, which the status and an active rollout show. Commands that wait for a budget are also
        evaluated then; without a signal, they poll it."""
        return self._is_only_change("usage", before)

    def _is_only_change(self, field: str, before: "ObservedNodePool") -> bool:
        value = getattr(self, field)
        same = before.model_copy(update={"number": self.number, field: value})
        return bool(value != getattr(before, field)) and same == self


class ObservedNodeClass(Message):
    """An EC2NodeClass or the number of its NodeClaims changed."""

    number: int = 0
    exists: bool = True
    generation: int = 0
    deleting: bool = False
    claims: int = 0
    stamps: str = ""


class LaunchGroupJoinRequest(Message):
    """Signal to Provisioning: a NodeClaim that is in no launch group, and that may launch with others of the same
    hash."""

    name: str
    uid: str
    pool: str
    node_class: str
    launch_hash: str
    group_id: str = ""
    """The launch group of its plan, which has not launched it; empty if no plan created it."""


class ObservedUnavailableOfferings(Message):
    """Signal to Provisioning: offerings that EC2 interrupted, or could not provide to an individual launch."""

    unavailable: tuple[UnavailableOffering, ...]
    burst_ends_at: datetime | None = None
    """End of an interruption burst, during which replacements are spread."""


class StartupOutcome(Message):
    """Whether a NodeClaim registered or failed to. A failed NodeClaim also signals it to the NodePool workflow."""

    uid: str
    at: datetime
    registered: bool = False
    reason: str = ""
    message: str = ""


class Registrations(Message):
    outcomes: tuple[StartupOutcome, ...] = ()
    """The latest outcomes, oldest first."""
    since: datetime | None = None
    """When the NodePool or its EC2NodeClass last changed. Earlier outcomes no longer count."""
    generation: int = 0
    class_generation: int = 0
