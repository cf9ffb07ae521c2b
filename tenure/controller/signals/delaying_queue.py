"""Keys that are due at a time, as in the delaying queue of client-go."""

import heapq
from datetime import datetime
from typing import Final

_MIN_STALE: Final = 100
"""Fewer outdated times cause no rebuild, also with few keys."""


class DelayingQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[datetime, str]] = []
        self._times: dict[str, datetime] = {}

    def schedule(self, key: str, at: datetime | None) -> None:
        """None cancels the key."""
        if at is None:
            self._times.pop(key, None)
        elif self._times.get(key) != at:
            self._times[key] = at
            heapq.heappush(self._heap, (at, key))
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Rebuild the heap when most of its times are outdated, since the last of them may be days ahead."""
        if len(self._heap) > 2 * len(self._times) + _MIN_STALE:
            self._heap = [(at, key) for key, at in self._times.items()]
            heapq.heapify(self._heap)

    def pop_due(self, now: datetime) -> list[str]:
        """Remove and return the keys that are due."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._times.get(key) == at:
                del self._times[key]
                due.append(key)
        return due

    def next_due_at(self) -> datetime | None:
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
