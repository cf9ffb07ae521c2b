"""What the Cluster workflow, the workflows of commands and the planner's host say of voluntary disruption.

The host keeps each command whole, with its pods and replacements (`model/disruption.py`); workflows know what is here.
"""

from datetime import datetime
from typing import Literal

from model.base import Message, Value
from model.disruption import Leaving, Method


class Proposal(Message):
    """A command that the planner would carry out now."""

    id: str
    """Of the nodes and the reason: what is proposed again has the same."""
    reason: Method
    kind: Literal["empty", "drift", "multi", "single"]
    candidates: tuple[Leaving, ...]
    replacements: int = 0
    """How many NodeClaims are made before the nodes go."""
    replacement_pools: tuple[str, ...] = ()
    price_before: float = 0.0
    """US dollars an hour."""
    price_after: float = 0.0
    why: str = ""


class UnderWay(Value):
    """A command that is being carried out."""

    proposal: Proposal
    claims: tuple[str, ...] = ()
    """Names of its replacements, once they are made."""


class Hold(Value):
    """Why nothing goes voluntarily for now."""

    scope: Literal["cluster", "pool", "node"]
    name: str = ""
    why: str
    until: datetime | None = None


class Bounced(Value):
    """Nodes whose disruption came to nothing: they are not tried again before a moment."""

    claims: tuple[str, ...] = ()
    """UIDs of the NodeClaims that were to go; empty: all of the NodePool, when replacements are needed."""
    pool: str = ""
    times: int = 1
    until: datetime
    why: str = ""


class DecideAsked(Message):
    """One pass of voluntary disruption."""

    under_way: tuple[UnderWay, ...] = ()
    holds: tuple[Hold, ...] = ()
    bounced: tuple[Bounced, ...] = ()
    first: tuple[str, ...] = ()
    """NodeClaims that the last pass did not reach."""


class Decided(Message):
    """What a pass found."""

    proposals: tuple[Proposal, ...] = ()
    first: tuple[str, ...] = ()
    again: datetime | None = None
    """When time alone changes a verdict: an end of consolidateAfter, of a window, of a minimum age."""
    eligible: int = 0
    excluded: int = 0
    blocked: str = ""
    """Why nothing was decided, for instance caches that are too old."""


class ReplaceAsked(Message):
    """Check a proposal against the cluster as it is now, and make its replacements."""

    proposal: Proposal
    plan_id: str
    """The same id always gives the same names."""
    workflow_id: str
    """Of the command: written on its replacements, whose workflows tell it how they fare."""
    under_way: tuple[UnderWay, ...] = ()


class Replaced(Message):
    outcome: Literal["made", "stale", "not now"]
    """`stale`: it would not be decided like this any more. `not now`: the host cannot say."""
    claims: tuple[str, ...] = ()
    why: str = ""


class ReplacementSaid(Message):
    """Signal of a replacement's workflow to that of the command."""

    claim: str
    ready: bool
    """False: it will never be."""
    why: str = ""


class Stirred(Message):
    """Signal to the Cluster workflow: something changed that could matter for voluntary disruption."""

    number: int = 0


class PermitRecalled(Message):
    """Signal of a NodePool to who holds a permit: stop at the next safe point."""

    claim_uid: str
    why: str
