"""Signals between workflows and operators: launches, permits, pauses."""

from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.model.base import Message
from tenure.model.launch import LaunchResult

REPEAT_QUERY: Final = "repeat the query"
"""Part of the error with which a worker rejects a query while workflow events wait for their workflow task."""
DisruptionReason = Literal["Empty", "Drifted", "Underutilized", "Unhealthy", "Expired", "Interrupted"]


class GroupResult(Message):
    group_id: str
    token: str = ""
    result: LaunchResult
    node_name: str = ""


class LaunchError(Message):
    """Signal to a NodeClaim: its launch failed several times and is repeated."""

    message: str
    """Begins with the reason of the condition Launched."""


class PermitRequest(Message):
    """Signal to a NodePool: request a permit to disrupt a node."""

    claim_name: str
    claim_uid: str
    workflow_id: str
    reason: DisruptionReason
    since: datetime
    begins_within: timedelta = timedelta(0)
    """How long after the permit expires the disruption may still start. The permit counts until then, used or not."""


class PermitRelease(Message):
    """Signal to a NodePool: withdraw a request or release a permit."""

    claim_uid: str
    workflow_id: str = ""
    """The requester or holder; empty: all of them for this NodeClaim."""
    used: bool = False
    """The node is terminating and counts for rates. False: the permit was not used."""


class PermitResult(Message):
    """Signal to the requester: a permit, which is a lease, or the reason for its refusal. A refusal applies until the
    next result."""

    claim_uid: str = ""
    """The NodeClaim of the request; empty if an earlier version responded."""
    granted: bool
    reason: DisruptionReason
    until: datetime | None = None
    """When the permit expires, unless the NodeClaim is being deleted by then."""
    blocked_by: str = ""


class Pause(Message):
    """A pause of voluntary disruption: requester, reason and end. Launches, drains and garbage collection continue.

    `tenure/policy/lifecycle/pauses.py` has the rules and the form of the annotation.
    """

    by: str
    reason: str
    until: datetime


class Resume(Message):
    by: str = ""


class OperatorRequestResult(Message):
    accepted: bool = True
    message: str = ""
