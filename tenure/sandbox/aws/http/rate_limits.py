"""Rate limits: a token bucket per account, region and action, disabled until the control API enables them.

The documented rates are from EC2's guide on request throttling: by kind of action, by action where listed, and by
instance for calls on several instances. CreateFleet is not listed, so it counts as a mutating action.

Also call counters by `service:Action` and access key, for benchmarks and the demo.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass

from tenure.sandbox.aws.http.faults import throttling_error
from tenure.sandbox.aws.http.request import AwsCall


@dataclass(frozen=True)
class Rate:
    """Refill in tokens per second, and size of the bucket."""

    refill: float
    bucket: float


READING = Rate(20, 100)
READING_ALL = Rate(10, 50)
MUTATING = Rate(5, 50)
BY_ACTION = {
    "RunInstances": Rate(2, 5),
    "StartInstances": Rate(2, 5),
    "TerminateInstances": Rate(5, 100),
    "CreateTags": Rate(10, 100),
    "DeleteTags": Rate(10, 100),
}
# Tokens for every instance of a call, in addition to the one for the call.
BY_INSTANCE = {
    "RunInstances": Rate(2, 1000),
    "StartInstances": Rate(2, 1000),
    "StopInstances": Rate(20, 1000),
    "TerminateInstances": Rate(20, 1000),
}
FILTERED_REQUEST = re.compile(r"MaxResults|Filter\.\d+\.|\w+(Id|Name)s?\.\d+|InstanceType\.\d+")


@dataclass
class _Bucket:
    tokens: float
    read_at: float


class CallRates:
    """`now` is on the stand-in's clock, so that `advance` refills buckets too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Remove all limits."""
        self._documented = False
        self._own: dict[str, Rate] = {}
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def use_documented(self) -> None:
        """Apply the documented rates to EC2's actions, except those with their own rate."""
        with self._lock:
            self._documented = True

    def set_rate(self, action: str, rate: Rate | None) -> None:
        """Set the rate of an action, with a full bucket; None removes it. Raises ValueError for invalid numbers."""
        if rate is not None and (rate.refill < 0 or rate.bucket < 1):
            raise ValueError("refill must not be negative, bucket must be 1 or more")
        name = action if ":" in action else f"ec2:{action}"
        with self._lock:
            self._own.pop(name, None)
            if rate is not None:
                self._own[name] = rate
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if key[1] != name}

    def list_rates(self) -> dict[str, object]:
        with self._lock:
            return {"documented": self._documented, "own": {name: vars(rate) for name, rate in self._own.items()}}

    def admit(self, call: AwsCall, now: float) -> None:
        """Take the tokens of a call. If one is missing, takes none and raises the throttling error of the service."""
        if not self._documented and not self._own:
            return
        with self._lock:
            costs = [
                (self._refilled_bucket(call.region, name, rate, now), rate, cost)
                for name, rate, cost in self._token_costs(call)
            ]
            if any(bucket.tokens < min(cost, rate.bucket) for bucket, rate, cost in costs):
                raise throttling_error(call.service)
            for bucket, _, cost in costs:
                bucket.tokens -= cost

    def _token_costs(self, call: AwsCall) -> list[tuple[str, Rate, float]]:
        name = f"{call.service}:{call.action}"
        if name in self._own:
            return [(name, self._own[name], 1)]
        if not self._documented or call.service != "ec2":
            return []
        found: list[tuple[str, Rate, float]] = [(name, documented_rate(call), 1)]
        if call.action in BY_INSTANCE:
            found.append((f"{name}/instances", BY_INSTANCE[call.action], _instance_count(call)))
        return found

    def _refilled_bucket(self, region: str, name: str, rate: Rate, now: float) -> _Bucket:
        bucket = self._buckets.setdefault((region, name), _Bucket(rate.bucket, now))
        bucket.tokens = min(rate.bucket, bucket.tokens + (now - bucket.read_at) * rate.refill)
        bucket.read_at = now
        return bucket


def documented_rate(call: AwsCall) -> Rate:
    if call.action in BY_ACTION:
        return BY_ACTION[call.action]
    if not call.action.startswith(("Describe", "Get", "List", "Search")):
        return MUTATING
    return READING if any(FILTERED_REQUEST.match(key) for key in call.form) else READING_ALL


def _instance_count(call: AwsCall) -> float:
    if call.action == "RunInstances":
        return float(call.form.get("MaxCount") or 1)
    return float(sum(key.startswith("InstanceId.") for key in call.form))


class Counters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[tuple[str, str, str]] = Counter()

    def record_call(self, name: str, access_key: str) -> None:
        with self._lock:
            self._calls[name, access_key] += 1

    def record_failure(self, name: str, access_key: str, code: str) -> None:
        with self._lock:
            self._errors[name, access_key, code] += 1

    def list_calls(self, access_key: str | None = None) -> dict[str, dict[str, object]]:
        """Count, errors and error codes by action, of all access keys or of one."""
        found: dict[str, Counter[str]] = {}
        counts: Counter[str] = Counter()
        with self._lock:
            for (name, key), count in self._calls.items():
                if access_key in (None, key):
                    counts[name] += count
            for (name, key, code), count in self._errors.items():
                if access_key in (None, key):
                    found.setdefault(name, Counter())[code] += count
        return {
            name: {
                "count": counts[name],
                "errors": sum(found.get(name, Counter()).values()),
                "codes": dict(found.get(name, {})),
            }
            for name in sorted(counts)
        }
