"""Tracks which endpoints are reachable. Each change is logged once, regardless of the number of failed calls."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger(__name__)

MIN_FAILURES: Final = 3
"""Consecutive calls without a response after which an endpoint is unreachable."""


class Endpoints:
    def __init__(self, observe: Callable[[str, bool], None] = lambda endpoint, unreachable: None) -> None:
        """`observe` receives each endpoint that becomes unreachable (True) or reachable again (False)."""
        self._observe = observe
        self._failures: Counter[str] = Counter()
        self.unreachable: set[str] = set()

    def record_response(self, endpoint: str) -> None:
        """Record any response, including errors."""
        self._failures.pop(endpoint, None)
        if endpoint in self.unreachable:
            self.unreachable.remove(endpoint)
            log.info("endpoint reachable again", endpoint=endpoint)
            self._observe(endpoint, False)

    def record_failure(self, endpoint: str, error: str) -> None:
        """Record a call without a response: failed name resolution, failed connection, or timeout."""
        self._failures[endpoint] += 1
        if self._failures[endpoint] >= MIN_FAILURES and endpoint not in self.unreachable:
            self.unreachable.add(endpoint)
            log.error("endpoint unreachable; calls are retried", endpoint=endpoint, error=error)
            self._observe(endpoint, True)
