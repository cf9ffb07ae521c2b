"""What the workflow of one command of voluntary disruption carries, is told and answers; and the Cluster workflow.

`workflows/disruption.py` carries a command out, `workflows/cluster.py` keeps all of them.
"""

from datetime import datetime, timedelta
from typing import Literal

from model.base import Message
from model.disrupting import Bounced, Proposal, UnderWay
from model.disruption import Leaving, Method
from model.messages import Pause, PermitAnswered
from model.pauses import Mirror
from model.permits import Booked

Step = Literal["Permit", "Begin", "Replace", "Wait", "Finish", "Undo", "Over"]
"""Of a command, in the order of a life without trouble; Undo takes the place of what is left to do."""
Ending = Literal["done", "not permitted", "recalled", "stale", "not replaced", "held", "failed"]
"""`stale`: it would not be decided like this any more. `not replaced`: replacements did not come up. `held`: a node
has to stay. `failed`: nobody could say or do it in time."""


class CommandOver(Message):
    """How a command ended; signal to the Cluster workflow, and result of the command's."""

    proposal_id: str
    ending: Ending
    why: str = ""
    nodes: tuple[str, ...] = ()
    """UIDs of the NodeClaims that it failed for; empty: of all."""
    keep_until: datetime | None = None
    """A person wants them left alone until then."""


class GiveUp(Message):
    """Update or signal of a person to a command: undo it."""

    by: str
    reason: str
    keep: timedelta = timedelta(0)
    """For how long its nodes are left alone; nothing: as after any command that was recalled."""


class CommandMade(Message):
    """Signal to the Cluster workflow: these NodeClaims are its replacements."""

    proposal_id: str
    claims: tuple[str, ...]


class CommandState(Message):
    """Input and state in one: a run starts from it, and a continued run carries it on."""

    cluster: str
    proposal: Proposal
    others: tuple[UnderWay, ...] = ()
    """Commands that were under way when this one began; until its replacements are made."""
    born: datetime | None = None
    step: Step = "Permit"
    since: datetime | None = None
    """When this step began."""
    deadline: datetime | None = None
    """Of this step."""
    plan_id: str = ""
    """Of its replacements' names."""
    permits: dict[str, PermitAnswered] = {}
    """The last answer for each NodeClaim, by UID."""
    renewed: datetime | None = None
    """When permits were asked for last."""
    claims: tuple[str, ...] = ()
    """Names of its replacements."""
    ready: tuple[str, ...] = ()
    """Those that say that they are."""
    lost: str = ""
    """What a replacement said that never will be."""
    recalled: str = ""
    """Why it is to stop."""
    keep_until: datetime | None = None
    """Its nodes are left alone until then."""
    ready_by: datetime | None = None
    """When replacements are waited for no more."""
    looks: int = 0
    """How often the live state did not let it finish since a replacement spoke last."""
    look_at: datetime | None = None
    """When to look again, whatever replacements say."""
    over: CommandOver | None = None
    """How it ends, be it that something is to be undone before."""
    blocked_by: str = ""


class CommandAsked(Message):
    """What the activities of a command are told."""

    workflow_id: str
    reason: Method
    candidates: tuple[Leaving, ...]
    replacements: tuple[str, ...] = ()
    why: str = ""


class CommandActed(Message):
    """What they answer."""

    outcome: Literal["done", "waiting", "held", "lost"]
    """`waiting`: not yet. `held`: a candidate has to stay. `lost`: a replacement is gone."""
    why: str = ""
    nodes: tuple[str, ...] = ()
    """UIDs of the NodeClaims that have to stay."""


class CommandRun(Message):
    """A command that was started."""

    under_way: UnderWay
    since: datetime


class DisruptionState(Message):
    """What the Cluster workflow carries."""

    cluster: str
    stirred: int = 0
    """Number of the last stir."""
    news: bool = False
    """Something changed since the last pass."""
    last: datetime | None = None
    """When the last pass began."""
    again: datetime | None = None
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
    bounced: tuple[Bounced, ...] = ()
    booked: tuple[Booked, ...] = ()
    """Permits under budgets for all NodePools together."""
    pause: Pause | None = None
    mirror: Mirror = Mirror()
    """Of the pause, as an annotation of the worker's namespace."""
