"""Inputs of a NodePool's decision on disruption permits: allowed disruptions, and reservations of other NodePools."""

from datetime import datetime, timedelta

from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.model.base import Message
from tenure.model.disruption.decision import PastDisruption
from tenure.model.operator_requests import InvalidRules
from tenure.model.workflow_states import Permit


class AllowedDisruptionsRequest(Message):
    name: str
    reason: str = "Empty"
    rules: DisruptionRules | None = None
    unread: InvalidRules = InvalidRules()
    past: tuple[PastDisruption, ...] = ()
    permits: tuple[Permit, ...] = ()
    candidates: tuple[str, ...] = ()
    """UIDs of NodeClaims that have or request a permit."""
    requesting: tuple[str, ...] = ()
    """UIDs of those whose own workflow requests one. They do not count as disrupted, even with tainted nodes."""
    reserved_uids: tuple[str, ...] = ()
    """UIDs of NodeClaims of other NodePools with a permit or reservation. They count as disrupted."""


class RecentDisruptions(Message):
    lookback: timedelta = timedelta(0)
    """The longest period of all rates; zero without rates."""
    past: tuple[PastDisruption, ...] = ()
    permits: tuple[Permit, ...] = ()


class PermitReservation(Message):
    pool: str
    claim_uid: str
    until: datetime


class ReservationRequest(Message):
    """Signal to the Cluster workflow: replaces all reservations of the NodePool."""

    pool: str
    workflow_id: str
    desired: dict[str, datetime] = {}
    """Deadline by UID of the NodeClaim."""
    token: str = ""
    """Returned in the response; empty: no response is needed."""


class ReservationResult(Message):
    """Signal to a NodePool: the reservations of other NodePools when its own were stored."""

    token: str = ""
    others: tuple[str, ...] = ()
    until: datetime | None = None
    """When the first of these reservations expires."""
