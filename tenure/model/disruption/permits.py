"""Input to a NodePool's decision on disruption permits, from the cluster and the Cluster workflow."""

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
    """UIDs of NodeClaims that permits are wished for, or out to."""
    requesting: tuple[str, ...] = ()
    """UIDs of those whose own workflows wish for one: so they are not being disrupted, whatever their nodes show."""
    reserved_uids: tuple[str, ...] = ()
    """UIDs of NodeClaims of other NodePools that have permits, or are about to: they count as going."""


class RecentDisruptions(Message):
    lookback: timedelta = timedelta(0)
    """How far back they look; nothing: there are none."""
    past: tuple[PastDisruption, ...] = ()
    permits: tuple[Permit, ...] = ()


class PermitReservation(Message):
    pool: str
    claim_uid: str
    until: datetime


class ReservationRequest(Message):
    """Signal to the Cluster workflow: these places, and none but these, are the NodePool's."""

    pool: str
    workflow_id: str
    desired: dict[str, datetime] = {}
    """Deadline by UID of the NodeClaim."""
    token: str = ""
    """Of the answer; empty: none is wished for."""


class ReservationResult(Message):
    """Signal to a NodePool: the other reservations at the time of its own."""

    token: str = ""
    others: tuple[str, ...] = ()
    until: datetime | None = None
    """When the first of these places lapses."""
