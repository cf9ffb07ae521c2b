"""Messages and states of voluntary disruption: of the Cluster workflow, command workflows and planner host.

Only the planner host has the complete commands (`tenure/model/disruption/decision.py`).
"""

from datetime import datetime, timedelta
from typing import Literal

from tenure.model.base import Message
from tenure.model.disruption.decision import CommandCandidate, CommandKind, Method, TerminateFirstReason
from tenure.model.disruption.permits import PermitReservation
from tenure.model.operator_requests import PauseAnnotation
from tenure.model.signals import Pause, PermitResult


class Proposal(Message):
    id: str
    """Derived from the nodes and the reason, so the same proposal has the same ID."""
    reason: Method
    kind: CommandKind
    candidates: tuple[CommandCandidate, ...]
    replacements: int = 0
    """Number of NodeClaims to create before the candidates are deleted."""
    replacement_pools: tuple[str, ...] = ()
    price_before: float = 0.0
    """US dollars an hour."""
    price_after: float = 0.0
    terminate_first: TerminateFirstReason = ""
    """Why the node is deleted before its replacement is launched; empty if it is not."""
    why: str = ""


class InFlightCommand(Message):
    proposal: Proposal
    claims: tuple[str, ...] = ()


class ActivePause(Message):
    scope: Literal["cluster", "pool", "node"]
    name: str = ""
    why: str
    until: datetime | None = None


class CommandBackoff(Message):
    """NodeClaims whose disruption failed; they are not retried before `until`."""

    claims: tuple[str, ...] = ()
    """UIDs of the candidates; empty: all NodeClaims of the NodePool that need replacements."""
    pool: str = ""
    times: int = 1
    until: datetime
    why: str = ""
    outage: bool = False
    """As of `CommandFinished`: another process that watches may succeed."""


class DisruptionDecisionRequest(Message):
    under_way: tuple[InFlightCommand, ...] = ()
    blockers: tuple[ActivePause, ...] = ()
    backoffs: tuple[CommandBackoff, ...] = ()
    first: tuple[str, ...] = ()


class DisruptionDecision(Message):
    proposals: tuple[Proposal, ...] = ()
    first: tuple[str, ...] = ()
    next_pass_at: datetime | None = None
    """When a verdict changes without an event: consolidateAfter, a window or a minimum age ends."""
    eligible: int = 0
    excluded: int = 0
    blocked: str = ""


class ReplacementRequest(Message):
    proposal: Proposal
    plan_id: str
    workflow_id: str
    """The command's workflow. Its replacements carry the ID, and their workflows report their status to it."""
    under_way: tuple[InFlightCommand, ...] = ()


class ReplacementResult(Message):
    outcome: Literal["made", "stale", "not now"]
    """`stale`: the decision no longer holds, or replacements are missing. `not now`: none can be created yet."""
    claims: tuple[str, ...] = ()
    why: str = ""


class ReplacementMessage(Message):
    claim: str
    ready: bool
    why: str = ""


class ClusterChanged(Message):
    """Signal to the Cluster workflow: a change in the cluster may affect voluntary disruption."""

    number: int = 0
    watch: int = 0
    """Differs for each process that watches. Earlier passes may have failed because their process was gone."""


class PermitRevoked(Message):
    claim_uid: str
    why: str


Step = Literal["Permit", "Begin", "Replace", "Wait", "Finish", "Undo", "Over"]
"""Steps of a command in order; Undo replaces the remaining steps."""
Ending = Literal["done", "not permitted", "cancelled", "stale", "not replaced", "held", "failed"]
"""`stale`: the decision no longer holds. `not replaced`: replacements did not initialize. `held`: a node is blocked.
`failed`: a step failed or ran out of time."""


class CommandFinished(Message):
    proposal_id: str
    ending: Ending
    why: str = ""
    nodes: tuple[str, ...] = ()
    """UIDs of the NodeClaims that caused the failure; empty: all candidates."""
    outage: bool = False
    """Whether it failed because no worker took its activities."""
    retain_until: datetime | None = None


class ClosedCommands(Message):
    """Signal to the Cluster workflow: commands whose workflow closed without a result, for example was terminated."""

    closed: dict[str, datetime] = {}
    """When it closed, by proposal."""


class CommandCancellation(Message):
    """Update or signal from an operator to a command: roll it back."""

    by: str
    reason: str
    retain_for: timedelta = timedelta(0)


class CommandLaunched(Message):
    proposal_id: str
    claims: tuple[str, ...]


class CommandState(Message):
    """Input and state of a command workflow; a run that continues as new starts with it."""

    cluster: str
    proposal: Proposal
    other_commands: tuple[InFlightCommand, ...] = ()
    created_at: datetime | None = None
    step: Step = "Permit"
    since: datetime | None = None
    deadline: datetime | None = None
    plan_id: str = ""
    permits: dict[str, PermitResult] = {}
    permits_renewed_at: datetime | None = None
    claims: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    lost: str = ""
    revocation: str = ""
    retain_until: datetime | None = None
    ready_by: datetime | None = None
    failed_checks: int = 0
    next_check_at: datetime | None = None
    over: CommandFinished | None = None
    blocked_by: str = ""


class CommandRequest(Message):
    workflow_id: str
    reason: Method
    candidates: tuple[CommandCandidate, ...]
    replacements: tuple[str, ...] = ()
    why: str = ""


class CommandResult(Message):
    outcome: Literal["done", "waiting", "held", "lost"]
    """`waiting`: not yet. `held`: a candidate is blocked. `lost`: a replacement is gone."""
    why: str = ""
    nodes: tuple[str, ...] = ()


class CommandRun(Message):
    under_way: InFlightCommand
    since: datetime
    closed: bool = False
    """Its workflow closed without a result."""


class DisruptionState(Message):
    cluster: str
    change_number: int = 0
    watch: int = 0
    """Of the last signal."""
    has_changed: bool = False
    last: datetime | None = None
    next_pass_at: datetime | None = None
    not_before: datetime | None = None
    passes: int = 0
    faults: int = 0
    blocked_by: str = ""
    first: tuple[str, ...] = ()
    eligible: int = 0
    excluded: int = 0
    under_way: tuple[CommandRun, ...] = ()
    backoffs: tuple[CommandBackoff, ...] = ()
    reservations: tuple[PermitReservation, ...] = ()
    pause: Pause | None = None
    pause_annotation: PauseAnnotation = PauseAnnotation()
