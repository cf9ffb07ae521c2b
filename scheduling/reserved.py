"""Capacity reservations in one pass: how many more nodes each takes, and which of them a new node is planned into.

A node is planned into one reservation and says so in its requirements, so that no more nodes are ever planned into it
than EC2 says it has room for. `scheduling/priced/buying.py` asks here before it buys anything else.
"""

from collections.abc import Iterable, Mapping

from model.catalogue import ReservationRoom, UnavailableOffering
from model.facts import ClaimFact
from model.labels import CAPACITY_RESERVATION_ID
from model.marks import UNAVAILABLE_FOR


class Rooms:
    """What EC2 counted, less the NodeClaims that it cannot have counted yet; one for all pools, since they share."""

    def __init__(self, known: Mapping[str, ReservationRoom], claims: Iterable[ClaimFact] = ()) -> None:
        self._known = known
        self._left = {key: room.available for key, room in known.items()}
        for claim in claims:
            key = reservation_of(claim)
            if key in known and not _counted(claim, known[key]):
                self._left[key] -= 1

    def left(self, reservation_id: str) -> int:
        return max(0, self._left.get(reservation_id, 0))

    def refute(self, mark: UnavailableOffering) -> bool:
        """EC2 refused a reservation for want of room, and has counted some in it since."""
        room = self._known.get(mark.reservation_id)
        return room is not None and room.available > 0 and room.at > mark.until - UNAVAILABLE_FOR

    def take(self, reservation_id: str, nodes: int) -> None:
        self._left[reservation_id] = self.left(reservation_id) - nodes


def reservation_of(claim: ClaimFact) -> str:
    """The one reservation that it was planned into, or runs in."""
    for one in claim.requirements:
        if one.key == CAPACITY_RESERVATION_ID and one.operator == "In" and len(one.values) == 1:
            return one.values[0]
    return claim.labels.get(CAPACITY_RESERVATION_ID, "")


def _counted(claim: ClaimFact, room: ReservationRoom) -> bool:
    """One that was made after the count is not in it, nor one that has no instance."""
    return claim.launched and claim.created <= room.at
