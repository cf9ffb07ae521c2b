"""How many instances capacity reservations have room for: EC2's last count and what this process did since.

Rather too many than too few: a launch that finds no room after all is refused and planned anew, while room that
nobody sees is paid for and not used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from aws.cache import Expiring
from model.catalogue import ReservationRoom
from model.launches import FleetAnswer

_KEPT_FOR: Final = timedelta(hours=24)
"""A count that is not renewed for so long says nothing any more."""


@dataclass(slots=True)
class _Count:
    available: int
    at: datetime
    changes: list[tuple[datetime, int]] = field(default_factory=list)
    full_at: datetime | None = None


class Counts:
    """By reservation id. One that EC2 was never asked about has room for none."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._held: dict[str, _Count] = {}
        self._running: Expiring[str] = Expiring(_KEPT_FOR.total_seconds())

    def seen(self, available: Mapping[str, int], asked: datetime) -> None:
        """EC2's counts; `asked` is when the question went out, and what happened after that still counts."""
        for key, count in available.items():
            held = self._held.get(key)
            later = [one for one in held.changes if one[0] > asked] if held else []
            full = held.full_at if held and held.full_at and held.full_at > asked else None
            self._held[key] = _Count(count, asked, later, full)
        self._held = {key: one for key, one in self._held.items() if asked - one.at < _KEPT_FOR}

    def learn(self, answer: FleetAnswer) -> None:
        """What CreateFleet came to. Only a want of room makes a reservation full: a throttled call says nothing."""
        for instance in answer.instances:
            self.launched(instance.reservation_id)
        for error in answer.errors:
            if error.insufficient:
                self.full(error.reservation_id)

    def launched(self, reservation_id: str) -> None:
        self._change(reservation_id, -1)

    def holds(self, instance_id: str, reservation_id: str) -> None:
        """Seen running there, by whoever will also see its end."""
        if reservation_id:
            self._running.put(instance_id, reservation_id)

    def gone(self, instance_id: str) -> None:
        """It runs no more: its place is free, if it was seen to have one."""
        reservation_id = self._running.get(instance_id)
        if reservation_id is not None:
            self._running.forget(instance_id)
            self._change(reservation_id, 1)

    def full(self, reservation_id: str) -> None:
        """EC2 refused for want of room: none, until it counts anew."""
        if held := self._held.get(reservation_id):
            held.full_at = self._clock()

    def remaining(self, reservation_id: str) -> int:
        held = self._held.get(reservation_id)
        if held is None or held.full_at is not None or self._clock() - held.at >= _KEPT_FOR:
            return 0
        return max(0, held.available + sum(change for _, change in held.changes))

    def room(self, reservation_id: str) -> ReservationRoom | None:
        """EC2's own last count; None when it is not known. One that is full has none."""
        held = self._held.get(reservation_id)
        if held is None:
            return None
        return ReservationRoom(available=0 if held.full_at else held.available, at=held.at)

    def _change(self, reservation_id: str, change: int) -> None:
        if held := self._held.get(reservation_id):
            held.changes.append((self._clock(), change))
