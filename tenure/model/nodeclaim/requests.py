"""What the activities of a node's life are told and what they answer. Expected outcomes are values."""

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
    """A NodeClaim, and what was known of it when the call was made; each activity reads the live state itself."""

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
    """How far a life had come, from what outlived its workflow; nothing of an instance, nothing at all."""

    launched: LaunchedInstance | None = None
    node_name: str = ""
    registered: bool = False
    initialized: bool = False
    boot_id: str = ""
    expires: datetime | None = None
    lifetime: timedelta | None = None
    drift: str = ""
    drift_message: str = ""
    notified_overdue: str = ""
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
    retains_nodeclaim: bool = False
    """Take the node out of service and leave its NodeClaim for the end of the drain."""
    at_once: bool = False
    """Nothing may hold up the end: its termination grace period is over."""


class DisruptionResult(Message):
    outcome: Literal["deleting", "not now", "gone"]
    why: str = ""


class DrainRequest(Message):
    claim: NodeClaimRef
    known_blockers: str = ""
    """The verdict shown already: the activity comes back when it changes."""
    known: DrainStatus | None = None
    poll_timeout: float = 300.0
    """Seconds after which it comes back in any case."""
    began: datetime | None = None
    retains_nodeclaim: bool = False
    """The NodeClaim is not deleted before the pods are gone, unless a person deletes it."""
    escalate: bool = False
    rules: DrainRules | None = None
    pod_rules: tuple[PodDrainRule, ...] = ()
    """Classes of pods; the first that matches a pod says whether it waits."""
    stay: bool = False
    override: bool = False

    @property
    def cancellable(self) -> bool:
        """It may be given up, or told to leave pods alone that it would evict: then it has to hear of it at once."""
        return self.retains_nodeclaim or self.override or bool(self.pod_rules)


MAX_EVICTED_PODS: Final = 50
"""Pods by name, in the story of a node."""


class DrainResult(Message):
    outcome: Literal["drained", "waiting", "deadline passed", "not ready"]
    """`not ready`: the node's kubelet has been dead for so long that its pods are not waited for any more."""
    blockers: str = ""
    pods: int = 0
    deadline: datetime | None = None
    verdict: DrainStatus | None = None
    retains_nodeclaim: bool = False
    evicted_pods: tuple[str, ...] = ()
    """Pods that had to go, as `namespace/name`; at most `MAX_EVICTED_PODS`."""


class CancelDrainRequest(Message):
    claim: NodeClaimRef
    why: str
    event: str = "DrainGivenUp"


class StopStartResult(Message):
    """What became of a stop, or a start. `unfit`: what is on its disks would be lost."""

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
    """How soon what it resolved to may be out of date; None: as usual."""
    failed_lookups: str = ""
    """What AWS could not be asked; empty when all was."""


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
    """With what the NodePool's annotation tells of."""


class GroupRejection(Message):
    group_id: str
    members: tuple[NodeClaimRef, ...]
    reason: str
    message: str = ""
    final: bool = True
    """False: each member tries by itself until its launch deadline."""
