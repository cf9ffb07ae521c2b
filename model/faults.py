"""Faults of the outside world, in the classes that decide what happens next.

Adapters raise them, `activities/errors.py` maps them for Temporal. Expected outcomes (no capacity, already
gone, not ready yet) are values and never stand here.
"""

from __future__ import annotations


class Fault(Exception):
    """A call that did not do what was asked. `code` is the outside's own word, such as an EC2 error code."""

    retryable = True

    def __init__(self, message: str, *, code: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retry_after = retry_after
        """Seconds the outside asked us to wait, where it said so."""


class Throttled(Fault):
    """Too many calls: EC2's RequestLimitExceeded, Kubernetes' 429."""


class TryLater(Fault):
    """A passing fault: 5xx, time-out, cut connection, a cache that is too old."""


class Conflict(Fault):
    """The object changed under us (409); read again and decide again."""


class NotFound(Fault):
    """The thing named is not there; retrying the same call cannot help."""

    retryable = False


class Forbidden(Fault):
    """IAM or RBAC refuses. Retried slowly, since a person can mend it while we wait."""


class BadInput(Fault):
    """The request itself is wrong: names the object, the field, the value and what to write instead."""

    retryable = False
