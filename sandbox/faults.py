"""What the proxy in front of the API server is told to do wrong, and how often.

A rule names requests by method and path (a regular expression, searched in path and query) and says what befalls
them. The first rule that fits and has not run out is used. Tests add rules through `Faults`; `proxy.py` asks it at
each request.
"""

import json
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

_REASONS = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True)
class Answer:
    """Answer this status at once, as the API server would; the request does not reach it. `retry_after` is seconds."""

    status: int
    retry_after: int | None = None
    message: str = "the sandbox's proxy was told to answer so"

    def headers(self) -> dict[str, str]:
        after = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {"Content-Type": "application/json"} | after

    def body(self) -> bytes:
        status = {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": _REASONS.get(self.status, "Unknown"),
            "code": self.status,
            "details": {} if self.retry_after is None else {"retryAfterSeconds": self.retry_after},
        }
        return json.dumps(status).encode()


@dataclass(frozen=True)
class Delay:
    """Pass the request on after this many seconds."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """Close the connection; the request does not reach the API server."""


@dataclass(frozen=True)
class LoseAnswer:
    """Let the request be done, then close the connection instead of answering."""


Fault = Answer | Delay | Cut | LoseAnswer


@dataclass
class Rule:
    """`times` is how many requests it befalls (None: all), `share` the part of those that fit, `hits` the count."""

    fault: Fault
    path: re.Pattern[str]
    method: str | None = None
    times: int | None = None
    share: float = 1.0
    hits: int = field(default=0, init=False)

    def fits(self, method: str, path: str) -> bool:
        if self.times is not None and self.hits >= self.times:
            return False
        return self.method in (None, method) and self.path.search(path) is not None


class OpenRequests(Protocol):
    """The requests that are open at the proxy. Both may be called from any thread."""

    def count(self, path: re.Pattern[str]) -> int: ...

    def cut(self, path: re.Pattern[str]) -> int: ...


class Faults:
    """The rules of one proxy. Safe to use from any thread."""

    def __init__(self, requests: OpenRequests, seed: int = 0) -> None:
        self._requests = requests
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._dice = random.Random(seed)

    def add(
        self, fault: Fault, path: str = "", *, method: str | None = None, times: int | None = None, share: float = 1.0
    ) -> Rule:
        """A rule after those that are there. The empty path fits every request."""
        rule = Rule(fault, re.compile(path), method, times, share)
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: object) -> None:
        with self._lock:
            self._rules = [other for other in self._rules if other is not rule]

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    @contextmanager
    def during(self, fault: Fault, path: str = "", *, method: str | None = None, share: float = 1.0) -> Iterator[Rule]:
        """The rule holds inside the block."""
        rule = self.add(fault, path, method=method, share=share)
        try:
            yield rule
        finally:
            self.remove(rule)

    def cut_open(self, path: str = "") -> int:
        """Sever the connections of requests that are open now, such as watches; answers how many."""
        return self._requests.cut(re.compile(path))

    def open(self, path: str = "") -> int:
        """How many requests are open now."""
        return self._requests.count(re.compile(path))

    def next(self, method: str, path: str) -> Fault | None:
        """What befalls this request."""
        with self._lock:
            for rule in self._rules:
                if rule.fits(method, path) and (rule.share >= 1 or self._dice.random() < rule.share):
                    rule.hits += 1
                    return rule.fault
        return None
