"""How often each action was called and how it ended, by `service:Action` and access key; benchmark and demo read it."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[tuple[str, str, str]] = Counter()

    def called(self, name: str, access_key: str) -> None:
        with self._lock:
            self._calls[name, access_key] += 1

    def failed(self, name: str, access_key: str, code: str) -> None:
        with self._lock:
            self._errors[name, access_key, code] += 1

    def listing(self, access_key: str | None = None) -> dict[str, dict[str, object]]:
        """Count, errors and error codes by action: of all callers, or of one access key."""
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
