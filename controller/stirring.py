"""Tells the Cluster workflow when something changed that could matter for voluntary disruption: then it looks.

At once when nothing was told lately, then ever more slowly while things go on changing, and never while nothing does.
A NodeClaim that is gone leaves room for others: after that it is soon again.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from controller.caches import Caches
from controller.signaller import Signal, Signaller
from model.disrupting import Stirred
from workflows import ids

FIRST: Final = 1.0
EVERY: Final = 10.0
"""Seconds from one word to the next, at first and at last; Karpenter always takes the last (reference 4.1)."""
SHARE: Final = 4
"""Times as long as a pass takes the planner, whose other work is placing pods, it is left alone at the least."""
SIGNAL: Final = "stirred"


class Stirring:
    """Run `run` in a task once every kind is known; `look` after every burst of changes. `took`: seconds that the last
    pass took."""

    def __init__(
        self,
        caches: Caches,
        signaller: Signaller,
        cluster: str,
        *,
        took: Callable[[], float] = lambda: 0.0,
        first: float = FIRST,
        every: float = EVERY,
    ) -> None:
        self._caches, self._signaller, self._cluster = caches, signaller, cluster
        self._took, self._first, self._every = took, first, every
        self._pause = first
        self._changed, self._freed = asyncio.Event(), asyncio.Event()
        self._told, self._told_at = -1, -every

    def look(self, *, gone: bool = False) -> None:
        """`gone`: NodeClaims are."""
        if gone:
            self._pause = self._first
            self._freed.set()
        if self._caches.changes.stirs != self._told:
            self._changed.set()

    def stir(self) -> None:
        """Something outside the caches changed, such as prices."""
        self._caches.changes.stirs += 1
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled. The first word is that somebody watches again."""
        self.stir()
        while True:
            await self._changed.wait()
            await self._rest()
            self._changed.clear()
            if self._caches.changes.stirs == self._told:
                continue
            self._told, self._told_at = self._caches.changes.stirs, time.monotonic()
            number = time.time_ns()
            self._signaller.offer(Signal(ids.cluster(self._cluster), SIGNAL, Stirred(number=number), str(number)))

    async def _rest(self) -> None:
        """Until the next word is due; what is gone meanwhile may bring that forward."""
        if time.monotonic() >= self._told_at + self._every:
            self._pause = self._first
            return
        while (left := self._told_at + max(self._pause, SHARE * self._took()) - time.monotonic()) > 0:
            self._freed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), left)
        self._pause = min(self._every, 2 * self._pause)
