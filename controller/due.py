"""Things to look at again at a known time: the only clock-driven part of the watch.

A key has one time; setting it anew replaces it, also with a later one.
"""

import heapq
from datetime import datetime


class Due:
    def __init__(self) -> None:
        self._heap: list[tuple[datetime, str]] = []
        self._times: dict[str, datetime] = {}

    def set(self, key: str, at: datetime | None) -> None:
        """None: no longer."""
        if at is None:
            self._times.pop(key, None)
        elif self._times.get(key) != at:
            self._times[key] = at
            heapq.heappush(self._heap, (at, key))

    def take(self, now: datetime) -> list[str]:
        """The keys whose time has come; each is then forgotten."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._times.get(key) == at:
                del self._times[key]
                due.append(key)
        return due

    def next(self) -> datetime | None:
        """When the next one is due."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
