"""Fault rules: which calls fail, how and how often, and whether the call is performed before its response is lost.

Rules are evaluated in the order of their addition. The first matching rule decides, except that latencies add up.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
from dataclasses import dataclass, field
from typing import Any

from tenure.sandbox.aws.wire.responses import AwsError

KINDS = frozenset({"throttle", "5xx", "no-capacity", "latency", "answer-lost", "error"})
THROTTLE_CODES = {"ec2": "RequestLimitExceeded", "iam": "Throttling", "sts": "Throttling"}


@dataclass
class FaultRule:
    """`match` holds parameters that must occur somewhere in the request, by name and value; values may have `*`.

    `skip`: number of matching calls to ignore first. `times`: maximum number of hits. `probability`: per call.
    `latency`: real seconds before the call is performed.
    """

    id: str
    service: str = "*"
    action: str = "*"
    match: dict[str, str] = field(default_factory=dict)
    probability: float = 1.0
    times: int | None = None
    skip: int = 0
    kind: str = "error"
    code: str | None = None
    message: str | None = None
    http: int | None = None
    latency: float = 0.0
    match_count: int = 0
    hits: int = 0

    def error(self, service: str) -> AwsError:
        if self.kind == "throttle":
            default = throttling_error(service)
            return AwsError(self.code or default.code, self.message or default.message, self.http or default.http)
        if self.kind == "5xx":
            return AwsError(
                self.code or "InternalError", self.message or "An internal error has occurred", self.http or 500
            )
        if self.kind == "no-capacity":
            text = "There is no capacity available that matches your request."
            return AwsError(self.code or "InsufficientInstanceCapacity", self.message or text, self.http)
        return AwsError(self.code or "InternalError", self.message or "Injected fault", self.http)


def throttling_error(service: str) -> AwsError:
    """The throttling error of a service."""
    code = THROTTLE_CODES.get(service, "ThrottlingException")
    return AwsError(code, "Request limit exceeded.", 503 if service == "ec2" else 400)


@dataclass(frozen=True)
class InjectedFault:
    """Decision of the rules: wait, then fail with `error`, or perform the call and lose the response."""

    latency: float = 0.0
    error: AwsError | None = None
    drop_response: bool = False
    empty_pools: bool = False


class Faults:
    def __init__(self, seed: int = 1) -> None:
        self._lock = threading.Lock()
        self._seed = seed
        self.clear()

    def clear(self) -> None:
        self._rules: dict[str, FaultRule] = {}
        self._ids = itertools.count(1)
        self._random = random.Random(self._seed)

    def reseed(self, seed: int) -> None:
        """Seed the random numbers, so that a run can be repeated."""
        with self._lock:
            self._random = random.Random(seed)

    def add(self, rule: dict[str, Any]) -> FaultRule:
        """Raises ValueError for an unknown kind or field."""
        if rule.get("kind", "error") not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(sorted(KINDS))}")
        try:
            made = FaultRule(id=f"fault-{next(self._ids)}", **{k: v for k, v in rule.items() if v is not None})
        except TypeError as error:
            raise ValueError(str(error)) from None
        with self._lock:
            self._rules[made.id] = made
        return made

    def remove(self, rule_id: str) -> bool:
        with self._lock:
            return self._rules.pop(rule_id, None) is not None

    def list_rules(self) -> list[dict[str, Any]]:
        with self._lock:
            return [vars(rule).copy() for rule in self._rules.values()]

    def evaluate(self, service: str, action: str, parameters: dict[str, Any]) -> InjectedFault:
        if not self._rules:
            return InjectedFault()
        latency = 0.0
        with self._lock:
            for rule in self._rules.values():
                if not self._matches_rule(rule, service, action, parameters):
                    continue
                latency += rule.latency
                if rule.kind != "latency":
                    return _inject_rule(rule, service, action, latency)
        return InjectedFault(latency)

    def _matches_rule(self, rule: FaultRule, service: str, action: str, parameters: dict[str, Any]) -> bool:
        if not (
            _matches_glob(rule.service, service)
            and _matches_glob(rule.action, action)
            and _contains(parameters, rule.match)
        ):
            return False
        rule.match_count += 1
        if rule.match_count <= rule.skip or (rule.times is not None and rule.hits >= rule.times):
            return False
        if rule.probability < 1 and self._random.random() >= rule.probability:
            return False
        rule.hits += 1
        return True


def _inject_rule(rule: FaultRule, service: str, action: str, latency: float) -> InjectedFault:
    if rule.kind == "answer-lost":
        return InjectedFault(latency, error=rule.error(service) if rule.http else None, drop_response=True)
    if rule.kind == "no-capacity" and action == "CreateFleet":
        return InjectedFault(latency, error=rule.error(service), empty_pools=True)
    return InjectedFault(latency, error=rule.error(service))


def _matches_glob(pattern: str, text: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def _contains(parameters: dict[str, Any], expected: dict[str, str]) -> bool:
    """Whether each expected name is a parameter, or the last part of a dotted form key, with a matching value."""
    return all(
        any(_is_key_named(key, name) and _matches_glob(value, str(actual)) for key, actual in parameters.items())
        for name, value in expected.items()
    )


def _is_key_named(key: str, name: str) -> bool:
    return key == name or name in key.split(".")
