"""Faults of external systems, classified by the reaction to them; and findings of `tenure doctor`.

Adapters raise faults, `activities/runtime.py` maps them for Temporal. Expected outcomes (no capacity, already gone,
not ready yet) are values, not faults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from tenure.model.base import Message, Value


class Fault(Exception):
    """A call that failed. `code` is the external system's own code, such as an EC2 error code."""

    retryable = True

    def __init__(
        self, message: str, *, code: str = "", retry_after: float | None = None, is_unreachable: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.is_unreachable = is_unreachable
        """There was no answer at all; `tenure.endpoints` reports the endpoint."""
        self.retry_after = retry_after
        """Seconds that the external system asked the caller to wait, if it did."""


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
    """IAM or RBAC refused the call. Retried slowly, since an operator can fix it in the meantime."""


class BadInput(Fault):
    """The request itself is wrong: names the object, the field, the value and what to write instead."""

    retryable = False


Level = Literal["ok", "advice", "unknown", "problem"]
"""From good to bad. `unknown`: the credentials do not allow the check."""


class Finding(Value):
    area: str
    """Where it belongs, such as `permissions` or `quotas`."""
    subject: str
    """The object, action or setting that was looked at."""
    level: Level
    message: str
    todo: str = ""
    """The remedy; empty if none is needed."""


def ok_finding(area: str, subject: str, message: str) -> Finding:
    return Finding(area=area, subject=subject, level="ok", message=message)


def problem_finding(area: str, subject: str, message: str, todo: str) -> Finding:
    return Finding(area=area, subject=subject, level="problem", message=message, todo=todo)


def advice_finding(area: str, subject: str, message: str, todo: str) -> Finding:
    return Finding(area=area, subject=subject, level="advice", message=message, todo=todo)


def unknown_finding(area: str, subject: str, message: str, todo: str) -> Finding:
    return Finding(area=area, subject=subject, level="unknown", message=message, todo=todo)


class Subject(NamedTuple):
    """The object, action or setting that a check looks at, and its area."""

    area: str
    name: str

    def ok(self, message: str) -> Finding:
        return ok_finding(self.area, self.name, message)

    def problem(self, message: str, todo: str) -> Finding:
        return problem_finding(self.area, self.name, message, todo)

    def advice(self, message: str, todo: str) -> Finding:
        return advice_finding(self.area, self.name, message, todo)

    def unknown(self, message: str, todo: str) -> Finding:
        return unknown_finding(self.area, self.name, message, todo)


def has_problem(findings: Iterable[Finding]) -> bool:
    return any(one.level == "problem" for one in findings)


class InvalidObject(Message):
    """An object that raised an error when it was read or handled."""

    kind: str
    name: str
    """`namespace/name`; the name alone without a namespace."""
    reason: str
    """A short code such as `InvalidField`, for metrics."""
    message: str
    """The field, its value and the problem, in at most 300 characters."""


class InvalidObjectReport(Message):
    """State of the ClusterWatch workflow for `tenure stuck` and `tenure doctor`."""

    objects: tuple[InvalidObject, ...] = ()
    omitted: int = 0
    """How many there are beyond `objects`."""
