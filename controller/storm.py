"""How many nodes AWS takes back within some minutes, and until when they are a storm.

`taken_back.py` counts; `planning.py` deals out what it buys meanwhile (docs/decisions/storms-are-spread.md). The
Provisioning workflow remembers it for a worker that takes over in the middle.
"""

from datetime import datetime, timedelta
from heapq import nlargest
from typing import Final

STORM: Final = 10
"""Nodes that AWS takes back within five minutes. Fewer are replaced as cheaply as any others."""
ANEW_AFTER: Final = timedelta(seconds=30)
"""What is said once for many interruptions is said anew when more of them come for longer than that."""


class Storm:
    def __init__(self) -> None:
        self._counts: dict[str, datetime] = {}
        """By a NodeClaim's UID, until when it counts, though it may be gone by then."""
        self._told: datetime | None = None

    def count(self, uid: str, until: datetime) -> None:
        """Once for each, however often it is said."""
        self._counts.setdefault(uid, until)

    def until(self, now: datetime) -> datetime | None:
        """When fewer than `STORM` of them count; None where that is so now."""
        self._counts = {uid: until for uid, until in self._counts.items() if now < until}
        latest = nlargest(STORM, self._counts.values())
        return latest[-1] if len(latest) == STORM else None

    def is_news(self, now: datetime) -> bool:
        """A storm began, or goes on. What is news is taken to be told."""
        until = self.until(now)
        if until is None or (self._told is not None and until < self._told + ANEW_AFTER):
            return False
        self._told = until
        return True
