"""Zonal shifts, manual ones and autoshifts. Manual ones expire on the clock that `advance` moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tenure.sandbox.aws.state.clock import SimClock

APPLIED, NOT_APPLIED = "APPLIED", "NOT_APPLIED"


@dataclass(frozen=True)
class Shift:
    """`ends_at` is a clock time, `start` and `expiry` are timestamps. An autoshift lasts until AWS ends it."""

    id: str
    zone_id: str
    applied: bool
    auto: bool
    comment: str
    start: float
    expiry: float
    ends_at: float

    def view(self, resource: str) -> dict[str, Any]:
        """The shift in the format of GetManagedResource, for a resource ARN."""
        found: dict[str, Any] = {
            "appliedStatus": APPLIED if self.applied else NOT_APPLIED,
            "awayFrom": self.zone_id,
            "startTime": self.start,
        }
        if self.auto:
            return found
        shift = {"zonalShiftId": self.id, "resourceIdentifier": resource, "comment": self.comment}
        return found | shift | {"expiryTime": self.expiry, "shiftType": "ZONAL_SHIFT"}


class ZonalShifts:
    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._shifts: list[Shift] = []
        self._serial = 0

    def start(self, zone_id: str, *, seconds: float, applied: bool, auto: bool, comment: str) -> Shift:
        """Start a shift away from the zone."""
        self._serial += 1
        now, wall = self._clock.now(), self._clock.wall_time().timestamp()
        ends_at = float("inf") if auto else now + seconds
        name = f"00000000-0000-4000-8000-{self._serial:012x}"
        shift = Shift(name, zone_id, applied, auto, comment, wall, wall + seconds, ends_at)
        self._shifts.append(shift)
        return shift

    def list_current(self) -> list[Shift]:
        """Shifts that have neither ended nor expired."""
        now, wall = self._clock.now(), self._clock.wall_time().timestamp()
        return [one for one in self._shifts if one.auto or (one.ends_at > now and one.expiry > wall)]

    def end(self, zone_id: str | None = None) -> None:
        """End the shifts of one zone, or all."""
        self._shifts = [one for one in self._shifts if zone_id is not None and one.zone_id != zone_id]
