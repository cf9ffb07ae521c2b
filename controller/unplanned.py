"""For how long a new host of the watch believes that pods without a place may be on their way to nodes that look empty.

What earlier plans said is known to the process that made them. Instance types have to be known before the first plan
here, and AWS may be slow.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from controller.caches import Caches
from controller.demand import wants_a_plan
from controller.nominations import ANSWERED_WITHIN

UNPLANNED: Final = ANSWERED_WITHIN
"""From when it is known which nodes look empty."""


class Unplanned:
    """`planned`: there was a plan; `unsure`: what CapacityBuffers need is not known yet."""

    def __init__(self, caches: Caches, *, planned: Callable[[], bool], unsure: Callable[[], bool]) -> None:
        self._caches, self._planned, self._unsure = caches, planned, unsure
        self._synced_at: datetime | None = None

    def until(self, now: datetime, *, synced: bool) -> datetime | None:
        """None where nothing is on its way, or is given up. `synced`: NodeClaims, Nodes, pods and NodePools are."""
        self._synced_at = self._synced_at or (now if synced else None)
        until = (self._synced_at or now) + UNPLANNED
        if now >= until:
            return None
        return until if self._unsure() or (not self._planned() and wants_a_plan(self._caches, now)) else None
