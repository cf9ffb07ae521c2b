"""State of a NodeClaim workflow, which each continue-as-new passes on.

`tenure/policy/lifecycle/transitions.py` has the table of legal transitions.
"""

from datetime import datetime, timedelta

from tenure.model.base import Message
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY, DiscoveredCapacity
from tenure.model.disruption.drain import CancelledDrain, DrainState
from tenure.model.hooks import Hooks
from tenure.model.instance_types import UnavailableOffering
from tenure.model.interruption.records import InstanceStopStart, TrackedInterruption
from tenure.model.launch import LaunchedInstance, LaunchGroup, LaunchRejection
from tenure.model.node_health import Health, NotReadyInterval
from tenure.model.nodeclaim.history import TERMINATING_PHASES as TERMINATING_PHASES
from tenure.model.nodeclaim.history import NodeClaimOutcome as NodeClaimOutcome
from tenure.model.nodeclaim.history import Phase as Phase
from tenure.model.nodeclaim.history import Step as Step
from tenure.model.nodeclaim.requests import InstanceStatus, ReportRequest
from tenure.model.observations import ObservedNodeClaim
from tenure.model.operator_requests import PauseAnnotation
from tenure.model.plan import ExpectedDurations
from tenure.model.signals import DisruptionReason, Pause, PermitResult


class Deadlines(Message):
    """How long each phase may take before it is overdue. Launch and registration have Karpenter's defaults."""

    launch: timedelta = timedelta(minutes=5)
    registration: timedelta = timedelta(minutes=15)
    initialization: timedelta = timedelta(minutes=30)
    drain: timedelta = timedelta(hours=1)
    termination: timedelta = timedelta(minutes=15)
    not_ready_grace: timedelta = timedelta(minutes=5)
    """How long planning still uses the capacity of a node that became NotReady."""


class NodeClaimIdentity(Message):
    """Immutable identity of the NodeClaim."""

    cluster: str
    name: str
    uid: str
    pool: str = ""
    node_class: str = ""
    group_id: str = ""
    """The launch group of the plan that created it; empty if no plan did."""
    launch_hash: str = ""
    """A hash of all launch inputs of a NodeClaim that no plan created. Equal ones of a NodePool may launch together."""
    created: datetime
    why: str = ""
    """Why the plan created it; empty if no plan did."""
    replaces: str = ""
    termination_grace_period: str = ""
    """A Go duration; empty if a drain has no time limit."""

    @property
    def summary(self) -> str:
        """Static summary of its workflow."""
        return f"{self.name} of {self.pool}" if self.pool else self.name

    @property
    def details(self) -> str:
        """Static details of its workflow, as Markdown. Temporal does not pass them to a run that continues as new."""
        lines = [f"NodePool **{self.pool or 'none'}**, EC2NodeClass **{self.node_class or 'none'}**"]
        return "\n\n".join([*lines, f"Created for: {self.why}"] if self.why else lines)


class NodeClaimState(Message):
    """Input and state of the workflow; a run that continues as new starts with it."""

    identity: NodeClaimIdentity
    deadlines: Deadlines = Deadlines()
    phase: Phase = Phase.LAUNCH
    since: datetime | None = None
    deadline: datetime | None = None
    overdue: bool = False
    reported_attention: str = ""
    """The message last written to the condition NeedsAttention."""
    expected: ExpectedDurations | None = None
    slow: bool = False
    blocked_by: str = ""
    """The last blocker as text; `tenure/policy/lifecycle/verdict.py` decides how it is shown."""
    blocked_code: str = ""
    """The code of `blocked_by` in `tenure/model/blockers.py`; without meaning if `blocked_by` is empty."""
    launch_attempt: int = 1
    group: LaunchGroup | None = None
    """Set before CreateFleet is called, and unchanged until the attempt ends."""
    unavailable: tuple[UnavailableOffering, ...] = ()
    discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY
    """Of its EC2NodeClass, if the NodeClaim launches individually; empty after the launch."""
    joined: bool = False
    """Provisioning was asked to add it to a launch group. It launches individually only after a rejection."""
    launched: LaunchedInstance | None = None
    rejection: LaunchRejection | None = None
    observed: ObservedNodeClaim = ObservedNodeClaim()
    unconfirmed_deletion: ObservedNodeClaim | None = None
    """The watch reported that the NodeClaim is gone; a live read has not confirmed it yet."""
    unready_since: datetime | None = None
    is_newly_unready: bool = False
    """The instance was not checked since the Node became NotReady."""
    instance_checks: int = 0
    """Number of consecutive checks that found its instance running while the Node was missing or NotReady."""
    instance_status: InstanceStatus = InstanceStatus()
    """As last read while the Node was missing or NotReady."""
    node_missing_since: datetime | None = None
    """When the registered Node was first missing; None if it exists."""
    missing_reported: str = ""
    """The message last written to the condition NodeMissing."""
    node_name: str = ""
    registered: bool = False
    registration_checked: int = 0
    """The number of the observation after which the Node was last registered again."""
    initialized: bool = False
    boot_id: str = ""
    flaps: int = 0
    """Number of NotReady intervals since initialization, including temporary taints."""
    reboots: int = 0
    not_ready_intervals: tuple[NotReadyInterval, ...] = ()
    not_ready_annotation: str = ""
    expires: datetime | None = None
    """Latest expiration time, computed by `tenure/policy/lifecycle/ready.py` from the current rules."""
    lifetime: timedelta | None = None
    """expireAfter; None: never, or of a NodeClaim of a version without expiration jitter."""
    drift: str = ""
    """The reason last written to the condition Drifted; `observed` has the current one."""
    drift_message: str = ""
    health: Health = Health()
    permit: PermitResult | None = None
    permit_requested_at: datetime | None = None
    permit_for: DisruptionReason = "Empty"
    permit_retries: int = 0
    disruption: str = ""
    """The reason for its deletion: Empty, Expired, Deleted, LaunchFailed, or a deadline's name."""
    disruption_counted: bool = False
    pods_counted: bool = False
    """The metric of the pods of disrupted NodeClaims has its pods."""
    pause: Pause | None = None
    pause_annotation: PauseAnnotation = PauseAnnotation()
    revocation: str = ""
    drain: DrainState | None = None
    evicted_pods: tuple[str, ...] = ()
    """Pods that its drain evicted or waited for, as `namespace/name`."""
    cancelled_drain: CancelledDrain | None = None
    hooks: Hooks = Hooks()
    interruptions: tuple[TrackedInterruption, ...] = ()
    """AWS events of its instance, maintained by `tenure/policy/interruption/events.py`."""
    published_event_versions: dict[str, str] = {}
    """Version of the last Kubernetes event about each, by topic (`tenure/policy/interruption/event_texts.py`)."""
    interruptions_annotation: str = ""
    pending_events: tuple[ReportRequest, ...] = ()
    """Kubernetes events that the outbox has not sent yet, oldest first."""
    maintenance_until: datetime | None = None
    node_conditions: dict[str, str] = {}
    """Published lifecycle conditions of the Node for AWS events, with their messages."""
    out_of_service: bool = False
    """An activity may have tainted the node, so the node must be put back into service unless it is disrupted."""
    interrupted: str = ""
    stop: InstanceStopStart | None = None
    waits_until: datetime | None = None
    reported_ready: bool | None = None
    history: tuple[Step, ...] = ()
