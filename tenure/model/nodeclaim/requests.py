"""Inputs and results of the NodeClaim activities. Expected outcomes are values."""

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
    """The NodeClaim as the workflow knows it. Activities read the live state themselves."""

    name: str
    uid: str
    node_name: str = ""
    provider_id: str = ""
    initialized: bool = False
    """The node was initialized before, so if it starts again, it has rebooted."""


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
    """None: the NodeClaim already has an instance, so nothing may be launched for it."""
    members: tuple[LaunchGroupMember, ...] | None = None
    """In a retry: the members that still need an instance; None for all members."""


class RecoveredState(Message):
    """State of a lost workflow, recovered from its NodeClaim, Node and instance; empty without an instance."""

    launched: LaunchedInstance | None = None
    node_name: str = ""
    registered: bool = False
    initialized: bool = False
    boot_id: str = ""
    expires: datetime | None = None
    lifetime: timedelta | None = None
    drift: str = ""
    drift_message: str = ""
    reported_attention: str = ""
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
    """Check again that the reason still holds. Forceful disruptions (expiration, a deadline) do not."""
    defers_deletion: bool = False
    """Take the node out of service, and delete its NodeClaim only at the end of the drain."""
    at_once: bool = False
    """The termination grace period is over, so nothing may delay termination."""


class DisruptionResult(Message):
    outcome: Literal["deleting", "not now", "gone"]
    why: str = ""


class DrainRequest(Message):
    claim: NodeClaimRef
    known_blockers: str = ""
    """The published status line. The activity returns when it changes."""
    known: DrainStatus | None = None
    poll_timeout: float = 300.0
    """Seconds after which the activity returns even if nothing has changed."""
    began: datetime | None = None
    defers_deletion: bool = False
    """The NodeClaim is deleted only after the pods are gone, unless a user deletes it."""
    escalate: bool = False
    rules: DrainRules | None = None
    pod_rules: tuple[PodDrainRule, ...] = ()
    """The first rule that matches a pod decides whether its eviction is blocked."""
    stay: bool = False
    reboots: bool = False
    """The node is drained for a reboot: it has the taint `rebooting`, and no condition of a drain is written."""
    override: bool = False

    @property
    def cancellable(self) -> bool:
        """The drain may be cancelled or told to keep pods, so the activity must notice its cancellation immediately."""
        return self.defers_deletion or self.override or bool(self.pod_rules)


MAX_EVICTED_PODS: Final = 50
"""Number of pods listed by name in a node's history."""


class DrainResult(Message):
    outcome: Literal["drained", "waiting", "deadline passed", "not ready"]
    """`not ready`: the node has been NotReady for so long that the drain no longer waits for its pods."""
    blockers: str = ""
    pods: int = 0
    deadline: datetime | None = None
    status: DrainStatus | None = None
    defers_deletion: bool = False
    is_waiting: bool = False
    """Only known blockers are left, so that the next pass follows a change or a timer."""
    next_change_at: datetime | None = None
    """When a blocker clears by itself, or a deadline passes."""
    evicted_pods: tuple[str, ...] = ()
    """Pods that the drain evicted or waited for, as `namespace/name`; at most `MAX_EVICTED_PODS`."""
    rescheduled_pods: int = 0
    """Number of pods that had to run on another node when the activity started."""


class CancelDrainRequest(Message):
    claim: NodeClaimRef
    why: str
    event: str = "DrainGivenUp"


class InstanceStatus(Message):
    state: str = ""
    """As in EC2, such as `running` or `stopped`; empty if EC2 does not list the instance."""
    reason: str = ""
    """EC2's reason for this state, such as `Client.UserInitiatedShutdown: User initiated shutdown`."""

    @property
    def is_stopped(self) -> bool:
        return self.state in ("stopping", "stopped")

    def describe(self) -> str:
        return f"EC2: its instance is {self.state}{f' ({self.reason})' if self.reason else ''}"


class StopStartResult(Message):
    """Result of a stop or a start. `unfit`: a stop would lose data on the instance's disks."""

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
    on_node: bool = False
    """The Node gets the condition and the event too."""


class NotReadyNotification(Message):
    claim: NodeClaimRef
    not_ready_intervals: tuple[NotReadyInterval, ...]


class TerminationRequest(Message):
    claim: NodeClaimRef
    reason: str


class NodeClassRequest(Message):
    name: str
    restamp: bool = False
    """NodeClaims of the EC2NodeClass have hash annotations of another version of the static hash."""


class NodeClassResult(Message):
    exists: bool = True
    generation: int = 0
    ready: str = ""
    message: str = ""
    retry_after: timedelta | None = None
    """When to resolve again; None: after the default interval."""
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
    """Includes those in the NodePool's annotation."""


class GroupRejection(Message):
    group_id: str
    members: tuple[NodeClaimRef, ...]
    reason: str
    message: str = ""
    final: bool = True
    """False: each member launches individually until its launch deadline."""
