"""Whether servers answer: one log line when one stops, and one when it answers again, however many calls fail."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger(__name__)

MIN_FAILURES: Final = 3
"""Calls in a row without an answer, after which an endpoint is unreachable."""


class Endpoints:
    def __init__(self, observe: Callable[[str, bool], None] = lambda endpoint, unreachable: None) -> None:
        """`observe` gets each endpoint that becomes unreachable, or that answers again."""
        self._observe = observe
        self._failures: Counter[str] = Counter()
        self.unreachable: set[str] = set()

    def record_response(self, endpoint: str) -> None:
        """Any answer, also one that refuses the call."""
        self._failures.pop(endpoint, None)
        if endpoint in self.unreachable:
            self.unreachable.remove(endpoint)
            log.info("endpoint answers again", endpoint=endpoint)
            self._observe(endpoint, False)

    def record_failure(self, endpoint: str, error: str) -> None:
        """A call without an answer: its name was not resolved, the connection failed, or the time ran out."""
        self._failures[endpoint] += 1
        if self._failures[endpoint] >= MIN_FAILURES and endpoint not in self.unreachable:
            self.unreachable.add(endpoint)
            log.error("endpoint unreachable; calls are retried", endpoint=endpoint, error=error)
            self._observe(endpoint, True)
