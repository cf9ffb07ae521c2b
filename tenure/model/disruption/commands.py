"""What the Cluster workflow, the workflows of commands and the planner's host say of voluntary disruption.

The host keeps each command whole, with its pods and replacements (`tenure/model/disruption/decision.py`); workflows
know what is here.

What the workflow of one command of voluntary disruption carries, is told and answers; and the Cluster workflow.

`workflows/disruption/command.py` carries a command out, `workflows/disruption/cluster.py` keeps all of them.
"""

from datetime import datetime, timedelta
from typing import Literal

from tenure.model.base import Message, Value
from tenure.model.disruption.decision import CommandCandidate, Method
from tenure.model.disruption.permits import PermitReservation
from tenure.model.operator_requests import PauseAnnotation
from tenure.model.signals import Pause, PermitResult


class Proposal(Message):
    """A command that the planner would carry out now."""

    id: str
    """Of the nodes and the reason: what is proposed again has the same."""
    reason: Method
    kind: Literal["empty", "drift", "multi", "single"]
    candidates: tuple[CommandCandidate, ...]
    replacements: int = 0
    """How many NodeClaims are made before the nodes go."""
    replacement_pools: tuple[str, ...] = ()
    price_before: float = 0.0
    """US dollars an hour."""
    price_after: float = 0.0
    why: str = ""


class InFlightCommand(Value):
    """A command that is being carried out."""

    proposal: Proposal
    claims: tuple[str, ...] = ()
    """Names of its replacements, once they are made."""


class DisruptionBlocker(Value):
    """Why nothing goes voluntarily for now."""

    scope: Literal["cluster", "pool", "node"]
    name: str = ""
    why: str
    until: datetime | None = None


class CommandBackoff(Value):
    """Nodes whose disruption came to nothing: they are not tried again before a moment."""

    claims: tuple[str, ...] = ()
    """UIDs of the NodeClaims that were to go; empty: all of the NodePool, when replacements are needed."""
    pool: str = ""
    times: int = 1
    until: datetime
    why: str = ""


class DisruptionDecisionRequest(Message):
    """One pass of voluntary disruption."""

    under_way: tuple[InFlightCommand, ...] = ()
    blockers: tuple[DisruptionBlocker, ...] = ()
    backoffs: tuple[CommandBackoff, ...] = ()
    first: tuple[str, ...] = ()
    """NodeClaims that the last pass did not reach."""


class DisruptionDecision(Message):
    """What a pass found."""

    proposals: tuple[Proposal, ...] = ()
    first: tuple[str, ...] = ()
    next_pass_at: datetime | None = None
    """When time alone changes a verdict: an end of consolidateAfter, of a window, of a minimum age."""
    eligible: int = 0
    excluded: int = 0
    blocked: str = ""
    """Why nothing was decided, for instance caches that are too old."""


class ReplacementRequest(Message):
    """Check a proposal against the cluster as it is now, and make its replacements."""

    proposal: Proposal
    plan_id: str
    """The same id always gives the same names."""
    workflow_id: str
    """Of the command: written on its replacements, whose workflows tell it how they fare."""
    under_way: tuple[InFlightCommand, ...] = ()


class ReplacementResult(Message):
    outcome: Literal["made", "stale", "not now"]
    """`stale_kinds`: it would not be decided like this any more. `not now`: the host cannot say."""
    claims: tuple[str, ...] = ()
    why: str = ""


class ReplacementMessage(Message):
    """Signal of a replacement's workflow to that of the command."""

    claim: str
    ready: bool
    """False: it will never be."""
    why: str = ""


class ClusterChanged(Message):
    """Signal to the Cluster workflow: something changed that could matter for voluntary disruption."""

    number: int = 0


class PermitRevoked(Message):
    """Signal of a NodePool to who holds a permit: stop at the next safe point."""

    claim_uid: str
    why: str


Step = Literal["Permit", "Begin", "Replace", "Wait", "Finish", "Undo", "Over"]
"""Of a command, in the order of a life without trouble; Undo takes the place of what is left to do."""
Ending = Literal["done", "not permitted", "recalled", "stale", "not replaced", "held", "failed"]
"""`stale_kinds`: it would not be decided like this any more. `not replaced`: replacements did not come up.
`is_active`: a
node
has to stay. `failed`: nobody could say or do it in time."""


class CommandFinished(Message):
    """How a command ended; signal to the Cluster workflow, and result of the command's."""

    proposal_id: str
    ending: Ending
    why: str = ""
    nodes: tuple[str, ...] = ()
    """UIDs of the NodeClaims that it failed for; empty: of all."""
    retain_until: datetime | None = None
    """A person wants them left alone until then."""


class CommandCancellation(Message):
    """Update or signal of a person to a command: undo it."""

    by: str
    reason: str
    retain_for: timedelta = timedelta(0)
    """For how long its nodes are left alone; nothing: as after any command that was recalled."""


class CommandLaunched(Message):
    """Signal to the Cluster workflow: these NodeClaims are its replacements."""

    proposal_id: str
    claims: tuple[str, ...]


class CommandState(Message):
    """Input and state in one: a run starts from it, and a continued run carries it on."""

    cluster: str
    proposal: Proposal
    other_commands: tuple[InFlightCommand, ...] = ()
    """Commands that were under way when this one began; until its replacements are made."""
    created_at: datetime | None = None
    step: Step = "Permit"
    since: datetime | None = None
    """When this step began."""
    deadline: datetime | None = None
    """Of this step."""
    plan_id: str = ""
    """Of its replacements' names."""
    permits: dict[str, PermitResult] = {}
    """The last answer for each NodeClaim, by UID."""
    permits_renewed_at: datetime | None = None
    """When permits were asked for last."""
    claims: tuple[str, ...] = ()
    """Names of its replacements."""
    ready: tuple[str, ...] = ()
    """Those that say that they are."""
    lost: str = ""
    """What a replacement said that never will be."""
    revocation: str = ""
    """Why it is to stop."""
    retain_until: datetime | None = None
    """Its nodes are left alone until then."""
    ready_by: datetime | None = None
    """When replacements are waited for no more."""
    failed_checks: int = 0
    """How often the live state did not let it finish since a replacement spoke last."""
    next_check_at: datetime | None = None
    """When to look again, whatever replacements say."""
    over: CommandFinished | None = None
    """How it ends, be it that something is to be undone before."""
    blocked_by: str = ""


class CommandRequest(Message):
    """What the activities of a command are told."""

    workflow_id: str
    reason: Method
    candidates: tuple[CommandCandidate, ...]
    replacements: tuple[str, ...] = ()
    why: str = ""


class CommandResult(Message):
    """What they answer."""

    outcome: Literal["done", "waiting", "held", "lost"]
    """`waiting`: not yet. `is_active`: a candidate has to stay. `lost`: a replacement is gone."""
    why: str = ""
    nodes: tuple[str, ...] = ()
    """UIDs of the NodeClaims that have to stay."""


class CommandRun(Message):
    """A command that was started."""

    under_way: InFlightCommand
    since: datetime


class DisruptionState(Message):
    """What the Cluster workflow carries."""

    cluster: str
    change_number: int = 0
    """Number of the last stir."""
    has_changed: bool = False
    """Something changed since the last pass."""
    last: datetime | None = None
    """When the last pass began."""
    next_pass_at: datetime | None = None
    """When the next is due though nothing changes."""
    not_before: datetime | None = None
    """After one that came to nothing."""
    passes: int = 0
    faults: int = 0
    """Passes in a row that came to nothing."""
    blocked_by: str = ""
    first: tuple[str, ...] = ()
    eligible: int = 0
    excluded: int = 0
    under_way: tuple[CommandRun, ...] = ()
    backoffs: tuple[CommandBackoff, ...] = ()
    reservations: tuple[PermitReservation, ...] = ()
    """Permits under budgets for all NodePools together."""
    pause: Pause | None = None
    pause_annotation: PauseAnnotation = PauseAnnotation()
    """Of the pause, as an annotation of the worker's namespace."""
