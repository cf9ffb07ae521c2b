"""Clock of the fake. Instance timers use `now`, which can be scaled and moved; timestamps are wall time.

Timestamps stay real because clients compare them with their own clock.
"""

from __future__ import annotations

import datetime as dt
import time


class SimClock:
    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._start = time.monotonic()
        self._moved = 0.0

    def now(self) -> float:
        """Seconds since the start, scaled, plus everything `advance` added."""
        return (time.monotonic() - self._start) * self._scale + self._moved

    def advance(self, seconds: float) -> None:
        """Move the timers forward. Raises ValueError for a negative number: time does not go back."""
        if seconds < 0:
            raise ValueError("seconds must not be negative")
        self._moved += seconds

    def resume_at(self, now: float) -> None:
        """Go on from a stored moment, so that the timers of a kept state stay meaningful."""
        self._moved += now - self.now()

    def seconds_until(self, due: float, at_most: float) -> float:
        """Real seconds from now until the clock reads `due`, never less than a millisecond."""
        return min(at_most, max(0.001, (due - self.now()) / self._scale))

    @staticmethod
    def wall_time() -> dt.datetime:
        return dt.datetime.now(dt.UTC)
