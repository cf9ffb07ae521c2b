"""The wall clock of this process, corrected where it differs from the clock of the API server, and timed waits.

Decisions compare the time with timestamps that the API server and other workers wrote. Workflows use Temporal's time.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import structlog

log = structlog.get_logger(__name__)

MAX_OFFSET: Final = timedelta(seconds=30)
"""A smaller difference is not corrected: a response may take half of that, and its time is in whole seconds."""
_HALF_SECOND: Final = timedelta(seconds=0.5)
"""The average fraction that the header truncates."""
_SAME: Final = timedelta(seconds=5)
"""Two measurements agree if they differ by less."""


def _system_now() -> datetime:
    return datetime.now(UTC)


class Clock:
    def __init__(self, system_now: Callable[[], datetime] = _system_now) -> None:
        self._system_now = system_now
        self._subscribers: list[Callable[[timedelta], None]] = []
        self._last_measured: timedelta | None = None
        self._last_number = 0
        self.offset = timedelta()
        """How far the system clock is ahead of the API server's clock; zero below `MAX_OFFSET`."""

    def now(self) -> datetime:
        return self._system_now() - self.offset

    def next_number(self) -> int:
        """Nanoseconds since 1970; larger than every earlier number of this process."""
        corrected = time.time_ns() - self.offset // timedelta(microseconds=1) * 1000
        self._last_number = max(self._last_number + 1, corrected)
        return self._last_number

    def skip_numbers(self, until: datetime) -> None:
        """Later numbers are larger than those of a process whose clock has shown `until`. Corrected clocks of two
        processes differ by less than twice MAX_OFFSET."""
        limited = min(until, self.now() + 2 * MAX_OFFSET)
        self._last_number = max(self._last_number, int(limited.timestamp() * 1e9))

    def subscribe(self, handler: Callable[[timedelta], None]) -> None:
        """`handler` is called with every new offset."""
        self._subscribers.append(handler)

    def observe_date(self, header: str | None) -> None:
        """Measure the offset with the `Date` header of a response that just began. Two equal measurements set it."""
        try:
            server_now = parsedate_to_datetime(header or "").astimezone(UTC) + _HALF_SECOND
        except (ValueError, TypeError):
            return
        measured = self._system_now() - server_now
        before, self._last_measured = self._last_measured, measured
        if abs(measured) < MAX_OFFSET:
            self._set_offset(timedelta())
        elif before is not None and abs(measured - before) < _SAME <= abs(measured - self.offset):
            self._set_offset(timedelta(seconds=round(measured.total_seconds())))

    def describe_offset(self) -> str:
        """The problem and its remedy; empty without an offset."""
        if not self.offset:
            return ""
        seconds = self.offset.total_seconds()
        side = "ahead of" if seconds > 0 else "behind"
        return (
            f"the clock of this worker is {abs(seconds):.0f} s {side} the clock of the Kubernetes API server; Tenure "
            "corrects for it, but AWS may refuse requests: synchronize the clock of the host, e.g. with chrony"
        )

    def _set_offset(self, offset: timedelta) -> None:
        if offset == self.offset:
            return
        self.offset = offset
        if offset:
            log.error("clock differs from API server", offset_seconds=offset.total_seconds())
        else:
            log.info("clock agrees with API server again")
        for handler in self._subscribers:
            handler(offset)


CLOCK: Final = Clock()
"""The clock of the process. Decisions use its time, or a time parameter."""


def utc_now() -> datetime:
    """The corrected time."""
    return CLOCK.now()


async def wait_until_set(event: asyncio.Event, timeout_seconds: float | None) -> bool:
    """Whether the event is set within the timeout; None waits without one.

    Unlike `wait_for` of asyncio in Python 3.11, it does not swallow a cancellation that arrives as the wait ends.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return await event.wait()
    except TimeoutError:
        return False
