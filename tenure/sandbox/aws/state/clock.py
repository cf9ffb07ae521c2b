"""Clock of the AWS stand-in. Instance timers use `now`, which can be scaled and advanced. Timestamps are wall time.

Timestamps use the real time because clients compare them with their own clock.
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
        """Scaled seconds since the start, plus the seconds of `advance`."""
        return (time.monotonic() - self._start) * self._scale + self._moved

    def advance(self, seconds: float) -> None:
        """Advance the timers. Raises ValueError for a negative number."""
        if seconds < 0:
            raise ValueError("seconds must not be negative")
        self._moved += seconds

    def resume_at(self, now: float) -> None:
        """Continue from a stored time, so that the timers of a restored state remain valid."""
        self._moved += now - self.now()

    def seconds_until(self, due: float, at_most: float) -> float:
        """Real seconds until the clock time `due`, at least a millisecond."""
        return min(at_most, max(0.001, (due - self.now()) / self._scale))

    @staticmethod
    def wall_time() -> dt.datetime:
        return dt.datetime.now(dt.UTC)
