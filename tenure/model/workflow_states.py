"""States of the ClusterWatch, Provisioning, NodePool and NodeClass workflows."""

from datetime import datetime, timedelta

from tenure.model.base import Message
from tenure.model.discovered_capacity import DiscoveredCapacityState
from tenure.model.disruption.decision import PastDisruption
from tenure.model.errors import InvalidObjectReport
from tenure.model.extra_capacity import ReplicasState
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import LaunchGroup
from tenure.model.observations import (
    LaunchGroupJoinRequest,
    ObservedDemand,
    ObservedNodeClass,
    ObservedNodePool,
    Registrations,
)
from tenure.model.operator_requests import PauseAnnotation
from tenure.model.plan import LaunchDraft, ProvisioningBackoff, ReleasedPod
from tenure.model.rollout import RolloutEvent, RolloutState
from tenure.model.signals import Pause, PermitRequest


class BatchWindow(Message):
    """How long a batch of pending pods stays open: Karpenter's BATCH_IDLE_DURATION and BATCH_MAX_DURATION."""

    idle: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(seconds=10)


class WatchHost(Message):
    """The worker that hosts the watch, or whose session ended with a fault. Signal `report_host`."""

    identity: str
    at: datetime
    fault: str = ""


class ClusterWatchState(Message):
    cluster: str
    host: WatchHost | None = None
    invalid_objects: InvalidObjectReport = InvalidObjectReport()


class ProvisioningState(Message):
    cluster: str
    window: BatchWindow = BatchWindow()
    passes: int = 0
    plan_id: str = ""
    """Of a pass without a successful result so far. It is repeated under the same ID: it may have created NodeClaims
    before its host was lost, and these must be launched."""
    demand: ObservedDemand | None = None
    unavailable: tuple[UnavailableOffering, ...] = ()
    burst_ends_at: datetime | None = None
    """End of the interruption burst, during which launches are spread. Stored, since a new worker does not receive the
    messages again."""
    discovered_capacity: DiscoveredCapacityState = DiscoveredCapacityState()
    drafts: tuple[LaunchDraft, ...] = ()
    joining: tuple[LaunchGroupJoinRequest, ...] = ()
    groups: tuple[LaunchGroup, ...] = ()
    """Launch groups without a result so far. After a lost result, the call is repeated with the same token."""
    blocked_by: str = ""
    backoffs: tuple[ProvisioningBackoff, ...] = ()
    released: tuple[ReleasedPod, ...] = ()


class Permit(Message):
    claim_name: str
    claim_uid: str
    reason: str
    until: datetime
    workflow_id: str = ""
    """The holder: a NodeClaim workflow or a command workflow; empty if an earlier version granted the permit."""
    since: datetime | None = None
    begins_within: timedelta = timedelta(0)
    """As in PermitRequest."""

    @property
    def counts_until(self) -> datetime:
        """The disruption may start this late, and only then does the node itself count against budgets."""
        return self.until + self.begins_within


class NodePoolState(Message):
    cluster: str
    name: str
    observed: ObservedNodePool = ObservedNodePool()
    pending_requests: tuple[PermitRequest, ...] = ()
    rejected: tuple[str, ...] = ()
    """Requesters that were notified of a refusal, as UID and workflow."""
    causes: dict[str, str] = {}
    """The cause of the last notification. A requester is notified again only of a different cause."""
    permits: tuple[Permit, ...] = ()
    past: tuple[PastDisruption, ...] = ()
    pause: Pause | None = None
    pause_annotation: PauseAnnotation = PauseAnnotation()
    blocked_by: str = ""
    replicas: ReplicasState = ReplicasState()
    registrations: Registrations = Registrations()
    rollout: RolloutState = RolloutState()
    rollout_blocked_by: str = ""
    rollout_events: tuple[RolloutEvent, ...] = ()
    """Published with the next evaluation of the rollout."""


class NodeClassState(Message):
    cluster: str
    name: str
    observed: ObservedNodeClass = ObservedNodeClass()
    resolved_generation: int = 0
    ready: str = ""
    message: str = ""
    consecutive_failures: int = 0
    failing_since: datetime | None = None
    failure_message: str = ""
    retry_after: timedelta | None = None


class NodePoolCount(Message):
    """Nodes of a NodePool as its budgets count them (reference 4.4)."""

    existing: tuple[str, ...] = ()
    """UIDs of NodeClaims that are managed and initialized, and whose instance is not terminating yet."""
    consuming: tuple[str, ...] = ()
    """Those of `existing` that are NotReady, missing or being deleted, which consume the budget."""
    unavailable: tuple[str, ...] = ()
    """Those of `consuming` that are NotReady or missing, and are not disrupted."""

    @property
    def total(self) -> int:
        return len(self.existing)
