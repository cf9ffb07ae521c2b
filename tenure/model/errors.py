"""Faults of external systems, classified by how callers react to them, and findings of `tenure doctor`.

Adapters raise faults; `activities/runtime.py` maps them to Temporal errors. Expected outcomes (no capacity, already
deleted, not ready yet) are values, not faults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from tenure.model.base import Message, Value


class Fault(Exception):
    """A failed call. `code` is the external system's error code, such as an EC2 error code."""

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        retry_after: float | None = None,
        is_unreachable: bool = False,
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the API server's response; 0 without one."""
        self.message = message
        self.code = code
        self.is_unreachable = is_unreachable
        """The endpoint did not respond; `tenure.endpoints` reports it."""
        self.retry_after = retry_after
        """Seconds that the external system asked the caller to wait; None if it did not."""

    @property
    def code_and_message(self) -> str:
        return f"{self.code}: {self.message}" if self.code else self.message


class Throttled(Fault):
    """Too many calls: EC2's RequestLimitExceeded, Kubernetes' 429."""


class TryLater(Fault):
    """A temporary fault: a 5xx response, a timeout, a broken connection or an outdated cache."""


class Conflict(Fault):
    """The object changed in the meantime (409). Read it again and decide again."""


class NotFound(Fault):
    """The named object does not exist; retrying the same call cannot help."""

    retryable = False


class Forbidden(Fault):
    """IAM or RBAC denied the call. Retried at long intervals, since an operator can fix the permissions."""


class BadInput(Fault):
    """The request is invalid. The message names the object, the field, the value and the expected form."""

    retryable = False


class Preempted(BaseException):
    """A disruption pass ended without a decision, since pods wait for a plan. It is no fault of an object, so guards of
    objects do not catch it."""


Level = Literal["ok", "advice", "unknown", "problem"]
"""From good to bad. `unknown`: the credentials do not allow the check."""


class Finding(Value):
    area: str
    """Section of the report, such as `permissions` or `quotas`."""
    subject: str
    """The checked object, action or setting."""
    level: Level
    message: str
    todo: str = ""
    """The remedy; empty if none is needed."""


class Subject(NamedTuple):
    """The checked object, action or setting, and its area."""

    area: str
    name: str

    def ok(self, message: str) -> Finding:
        return Finding(area=self.area, subject=self.name, level="ok", message=message)

    def problem(self, message: str, todo: str) -> Finding:
        return Finding(area=self.area, subject=self.name, level="problem", message=message, todo=todo)

    def advice(self, message: str, todo: str) -> Finding:
        return Finding(area=self.area, subject=self.name, level="advice", message=message, todo=todo)

    def unknown(self, message: str, todo: str) -> Finding:
        return Finding(area=self.area, subject=self.name, level="unknown", message=message, todo=todo)


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
    """Number of invalid objects that `objects` does not list."""
