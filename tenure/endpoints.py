"""Tracks which endpoints are reachable. Each change is logged once, regardless of the number of failed calls."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger(__name__)

MIN_FAILURES: Final = 3
"""Consecutive calls without a response after which an endpoint is unreachable."""

IDLE_SECONDS: Final = 600.0
"""An endpoint without further calls is no longer reported, for example in a process that hosted the watch before."""


class Endpoints:
    """Used in one event loop."""

    def __init__(self, observe: Callable[[str, bool], None] = lambda endpoint, unreachable: None) -> None:
        """`observe` receives each endpoint that becomes unreachable (True) or reachable again (False)."""
        self._observe = observe
        self._failures: Counter[str] = Counter()
        self.unreachable: set[str] = set()
        self._expiry_timers: dict[str, asyncio.TimerHandle] = {}

    def record_response(self, endpoint: str) -> None:
        """Record any response, including errors."""
        self._failures.pop(endpoint, None)
        if endpoint in self.unreachable:
            log.info("endpoint reachable again", endpoint=endpoint)
            self._forget(endpoint)

    def record_failure(self, endpoint: str, error: str) -> None:
        """Record a call without a response: failed name resolution, failed connection, or timeout."""
        self._failures[endpoint] += 1
        if self._failures[endpoint] >= MIN_FAILURES and endpoint not in self.unreachable:
            self.unreachable.add(endpoint)
            log.error("endpoint unreachable; calls are retried", endpoint=endpoint, error=error)
            self._observe(endpoint, True)
        if endpoint in self.unreachable:
            self._restart_expiry(endpoint)

    def _restart_expiry(self, endpoint: str) -> None:
        if endpoint in self._expiry_timers:
            self._expiry_timers[endpoint].cancel()
        loop = asyncio.get_running_loop()
        self._expiry_timers[endpoint] = loop.call_later(IDLE_SECONDS, self._expire, endpoint)

    def _expire(self, endpoint: str) -> None:
        log.info("endpoint no longer called", endpoint=endpoint)
        self._forget(endpoint)

    def _forget(self, endpoint: str) -> None:
        self._failures.pop(endpoint, None)
        self._expiry_timers.pop(endpoint).cancel()
        self.unreachable.remove(endpoint)
        self._observe(endpoint, False)
