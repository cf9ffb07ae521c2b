"""How often each action was called and how it ended, by `service:Action`; read by the benchmark and the demo."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict


class Counters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self._calls: Counter[str] = Counter()
        self._errors: dict[str, Counter[str]] = defaultdict(Counter)

    def called(self, name: str) -> None:
        with self._lock:
            self._calls[name] += 1

    def failed(self, name: str, code: str) -> None:
        with self._lock:
            self._errors[name][code] += 1

    def listing(self) -> dict[str, dict[str, object]]:
        with self._lock:
            return {
                name: {"count": count, "errors": sum(self._errors[name].values()), "codes": dict(self._errors[name])}
                for name, count in sorted(self._calls.items())
            }
