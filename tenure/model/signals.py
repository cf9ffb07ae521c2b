"""Signals between workflows and operators: launches, permits, pauses."""

from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.model.base import Message
from tenure.model.launch import LaunchResult

REPEAT_QUERY: Final = "repeat the query"
"""In the error of a query that a worker rejects because events of the workflow wait for their task."""
DisruptionReason = Literal["Empty", "Drifted", "Underutilized", "Expired", "Interrupted"]


class GroupResult(Message):
    group_id: str
    token: str = ""
    result: LaunchResult
    node_name: str = ""


class PermitRequest(Message):
    """Signal to a NodePool: requests a permit to disrupt a node."""

    claim_name: str
    claim_uid: str
    workflow_id: str
    reason: DisruptionReason
    since: datetime
    begins_within: timedelta = timedelta(0)
    """How long after the permit's end the disruption may still start: the permit counts until then, used or not."""


class PermitRelease(Message):
    """Signal to a NodePool: withdraws a request, or releases a permit."""

    claim_uid: str
    workflow_id: str = ""
    """The requester or holder; empty: all of them for this NodeClaim."""
    used: bool = False
    """The node is terminating: it counts for rates. Otherwise the permit was not needed."""


class PermitResult(Message):
    """Signal to the requester: a lease to disrupt, or the reason for refusal. A refusal is valid until the next
    answer."""

    claim_uid: str = ""
    """The NodeClaim of the request; empty if an earlier version responded."""
    granted: bool
    reason: DisruptionReason
    until: datetime | None = None
    """The lease expires then, unless the NodeClaim is being deleted by that time."""
    blocked_by: str = ""


class Pause(Message):
    """A pause of voluntary disruption: requester, reason and end. Launch, drain and clean-up continue.

    `tenure/policy/lifecycle/pauses.py` has the rules and the annotation form.
    """

    by: str
    reason: str
    until: datetime


class Resume(Message):
    by: str = ""


class OperatorRequestResult(Message):
    accepted: bool = True
    message: str = ""
