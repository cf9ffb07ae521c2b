"""State of a NodeClaim workflow, carried through every continue-as-new.

Phases are in lifecycle order; `tenure/policy/lifecycle/transitions.py` has the table of legal transitions.
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
from tenure.model.nodeclaim.requests import ReportRequest
from tenure.model.observations import ObservedNodeClaim
from tenure.model.operator_requests import PauseAnnotation
from tenure.model.plan import ExpectedDurations
from tenure.model.signals import DisruptionReason, Pause, PermitResult


class Deadlines(Message):
    """How long each phase may take before it is overdue. Launch and registration are Karpenter's defaults."""

    launch: timedelta = timedelta(minutes=5)
    registration: timedelta = timedelta(minutes=15)
    initialization: timedelta = timedelta(minutes=30)
    drain: timedelta = timedelta(hours=1)
    termination: timedelta = timedelta(minutes=15)
    not_ready_grace: timedelta = timedelta(minutes=5)
    """How long a node that turned NotReady still counts as a home for its pods."""


class NodeClaimIdentity(Message):
    """Immutable identity of the NodeClaim."""

    cluster: str
    name: str
    uid: str
    pool: str = ""
    node_class: str = ""
    group_id: str = ""
    """The launch group it was made for; empty for one that launches itself."""
    launch_hash: str = ""
    """A hash of all that a launch is made of, where it may launch with others of its pool that ask for the same."""
    created: datetime
    why: str = ""
    """The plan's reason to create it; empty if no plan did."""
    replaces: str = ""


class NodeClaimState(Message):
    """Input and state in one: a run starts from it, and a continued run carries it on."""

    identity: NodeClaimIdentity
    deadlines: Deadlines = Deadlines()
    phase: Phase = Phase.LAUNCH
    since: datetime | None = None
    deadline: datetime | None = None
    overdue: bool = False
    reported_overdue: Phase | None = None
    expected: ExpectedDurations | None = None
    slow: bool = False
    blocked_by: str = ""
    """The blocker code found last; `tenure/policy/lifecycle/deadlines.py` decides how it is shown."""
    blocked_code: str = ""
    """Its code, of `tenure/model/blockers.py`; counts only with `blocked_by`."""
    launch_attempt: int = 1
    group: LaunchGroup | None = None
    """Frozen before CreateFleet is called; holds until an attempt ends."""
    unavailable: tuple[UnavailableOffering, ...] = ()
    discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY
    """Of its EC2NodeClass, where it launches itself; empty once it has."""
    joined: bool = False
    """Provisioning puts it into a launch group; from there on it must not launch itself unless that is refused."""
    launched: LaunchedInstance | None = None
    rejection: LaunchRejection | None = None
    observed: ObservedNodeClaim = ObservedNodeClaim()
    unready_since: datetime | None = None
    instance_checks: int = 0
    """How often in a row its instance was found to run while the Node is away or NotReady."""
    node_name: str = ""
    registered: bool = False
    initialized: bool = False
    boot_id: str = ""
    flaps: int = 0
    """How often the node was away after initialization: NotReady, or under a taint that passes."""
    reboots: int = 0
    not_ready_intervals: tuple[NotReadyInterval, ...] = ()
    not_ready_annotation: str = ""
    expires: datetime | None = None
    """Latest expiration time, computed by `tenure/policy/lifecycle/ready.py` from the current rules."""
    lifetime: timedelta | None = None
    """expireAfter; None: never, or of a life that began before expiry had jitter."""
    drift: str = ""
    """The reason last written to the condition Drifted; `observed` has the desired one."""
    drift_message: str = ""
    health: Health = Health()
    permit: PermitResult | None = None
    permit_requested_at: datetime | None = None
    permit_for: DisruptionReason = "Empty"
    permit_retries: int = 0
    disruption: str = ""
    """Why it goes: Empty, Expired, Deleted, LaunchFailed, a deadline's name."""
    disruption_counted: bool = False
    pause: Pause | None = None
    pause_annotation: PauseAnnotation = PauseAnnotation()
    revocation: str = ""
    drain: DrainState | None = None
    evicted_pods: tuple[str, ...] = ()
    """Pods that its drain was about, as `namespace/name`."""
    cancelled_drain: CancelledDrain | None = None
    hooks: Hooks = Hooks()
    interruptions: tuple[TrackedInterruption, ...] = ()
    """AWS events of its instance, kept by `tenure/policy/interruption/events.py`."""
    published_event_versions: dict[str, str] = {}
    """Version of the events published about each of them, by topic (`tenure/policy/interruption/event_texts.py`)."""
    interruptions_annotation: str = ""
    pending_events: tuple[ReportRequest, ...] = ()
    """Events for its NodeClaim that were not sent yet, oldest first."""
    maintenance_until: datetime | None = None
    out_of_service: bool = False
    """It began to be taken out of service, and is to be put back if it does not go."""
    interrupted: str = ""
    stop: InstanceStopStart | None = None
    waits_until: datetime | None = None
    reported_ready: bool | None = None
    history: tuple[Step, ...] = ()
