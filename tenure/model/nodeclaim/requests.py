"""Input and results of the NodeClaim activities. Expected outcomes are values."""

from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.base import Message
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY, DiscoveredCapacity
from tenure.model.disruption.drain import DrainStatus, PodDrainRule
from tenure.model.disruption.permits import RecentDisruptions
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import LaunchedInstance, LaunchGroupMember, LaunchPreparation
from tenure.model.node_health import NotReadyInterval
from tenure.model.observations import Registrations
from tenure.model.plan import LaunchDraft


class NodeClaimRef(Message):
    """A NodeClaim as known when the call was made; each activity reads the live state itself."""

    name: str
    uid: str
    node_name: str = ""
    provider_id: str = ""
    initialized: bool = False
    """The node was initialized before, as its workflow knows: if it starts again, it has rebooted."""


class NodeClaimLaunchRequest(Message):
    claim: NodeClaimRef
    unavailable: tuple[UnavailableOffering, ...] = ()
    retry: bool = False
    discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY


class GroupLaunchRequest(Message):
    draft: LaunchDraft
    unavailable: tuple[UnavailableOffering, ...] = ()
    retry: bool = False
    discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY


class PreparationResult(Message):
    preparation: LaunchPreparation | None = None
    """None: the NodeClaim has an instance already, so nothing may be launched for it."""
    members: tuple[LaunchGroupMember, ...] | None = None
    """Of a group that tries again, those that still wait for an instance; None for all of them."""


class RecoveredState(Message):
    """The phase recovered from objects that outlived the workflow; empty without an instance."""

    launched: LaunchedInstance | None = None
    node_name: str = ""
    registered: bool = False
    initialized: bool = False
    boot_id: str = ""
    expires: datetime | None = None
    lifetime: timedelta | None = None
    drift: str = ""
    drift_message: str = ""
    reported_overdue: str = ""
    not_ready_intervals: tuple[NotReadyInterval, ...] = ()
    interruptions: str = ""


class RegistrationResult(Message):
    outcome: Literal["registered", "no node", "several nodes", "gone"]
    node_name: str = ""
    boot_id: str = ""
    ready: bool = False
    expires: datetime | None = None
    lifetime: timedelta | None = None


class InitializationResult(Message):
    outcome: Literal["initialized", "waiting", "gone"]
    waiting_for: str = ""
    boot_id: str = ""
    expires: datetime | None = None
    lifetime: timedelta | None = None


class NodeClaimDisruptionRequest(Message):
    claim: NodeClaimRef
    reason: str
    voluntary: bool = True
    """Voluntary steps re-check that the reason still holds; a forceful one (expiry, a deadline) does not."""
    defers_deletion: bool = False
    """Take the node out of service and leave its NodeClaim for the end of the drain."""
    at_once: bool = False
    """Nothing may delay termination: the termination grace period is over."""


class DisruptionResult(Message):
    outcome: Literal["deleting", "not now", "gone"]
    why: str = ""


class DrainRequest(Message):
    claim: NodeClaimRef
    known_blockers: str = ""
    """The status line that is published: the activity returns when it changes."""
    known: DrainStatus | None = None
    poll_timeout: float = 300.0
    """Seconds after which it comes back in any case."""
    began: datetime | None = None
    defers_deletion: bool = False
    """The NodeClaim is deleted only after the pods are gone, unless a user deletes it."""
    escalate: bool = False
    rules: DrainRules | None = None
    pod_rules: tuple[PodDrainRule, ...] = ()
    """Classes of pods; the first that matches a pod says whether it waits."""
    stay: bool = False
    override: bool = False

    @property
    def cancellable(self) -> bool:
        """The drain may be cancelled, or asked to spare pods it would evict, so it must receive signals at once."""
        return self.defers_deletion or self.override or bool(self.pod_rules)


MAX_EVICTED_PODS: Final = 50
"""Number of pods listed by name in a node's history."""


class DrainResult(Message):
    outcome: Literal["drained", "waiting", "deadline passed", "not ready"]
    """`not ready`: the kubelet has been dead for so long that the drain stops waiting for its pods."""
    blockers: str = ""
    pods: int = 0
    deadline: datetime | None = None
    status: DrainStatus | None = None
    defers_deletion: bool = False
    evicted_pods: tuple[str, ...] = ()
    """Pods that had to go, as `namespace/name`; at most `MAX_EVICTED_PODS`."""


class CancelDrainRequest(Message):
    claim: NodeClaimRef
    why: str
    event: str = "DrainGivenUp"


class StopStartResult(Message):
    """Result of a stop or a start. `unfit`: data on its disks would be lost."""

    outcome: Literal["done", "gone", "unfit"]
    why: str = ""


class ReportRequest(Message):
    claim: NodeClaimRef
    condition: str = ""
    status: str = "Unknown"
    """Empty: the condition is removed."""
    reason: str = ""
    message: str = ""
    event: str = ""


class NotReadyNotification(Message):
    claim: NodeClaimRef
    not_ready_intervals: tuple[NotReadyInterval, ...]


class TerminationRequest(Message):
    claim: NodeClaimRef
    reason: str


class NodeClassRequest(Message):
    name: str
    restamp: bool = False
    """NodeClaims of the class are stamped by another version of the static hash."""


class NodeClassResult(Message):
    exists: bool = True
    generation: int = 0
    ready: str = ""
    message: str = ""
    retry_after: timedelta | None = None
    """When the resolved values may be out of date; None: the default interval."""
    failed_lookups: str = ""
    """AWS lookups that failed; empty if all succeeded."""


class NodePoolRequest(Message):
    name: str
    reason: str = "Empty"
    gate_off: bool = False
    registrations: Registrations = Registrations()
    recent_disruptions: RecentDisruptions = RecentDisruptions()


class NodePoolResult(Message):
    exists: bool = True
    registrations: Registrations | None = None
    recent_disruptions: RecentDisruptions = RecentDisruptions()
    """Including those in the NodePool's annotation."""


class GroupRejection(Message):
    group_id: str
    members: tuple[NodeClaimRef, ...]
    reason: str
    message: str = ""
    final: bool = True
    """False: each member tries by itself until its launch deadline."""
