"""Tells the Cluster workflow when something changed that could matter for voluntary disruption: then it looks.

At once when nothing was told lately, then no more than every so often, and never while nothing changes.
"""

import asyncio
import time
from typing import Final

from controller.caches import Caches
from controller.signaller import Signal, Signaller
from model.disrupting import Stirred
from workflows import ids

EVERY: Final = 10.0
"""Seconds, at the least; Karpenter looks so often (reference 4.1)."""
SIGNAL: Final = "stirred"


class Stirring:
    """Run `run` in a task once every kind is known; `look` after every burst of changes."""

    def __init__(self, caches: Caches, signaller: Signaller, cluster: str, *, every: float = EVERY) -> None:
        self._caches, self._signaller, self._cluster, self._every = caches, signaller, cluster, every
        self._changed = asyncio.Event()
        self._told = -1

    def look(self) -> None:
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
            self._changed.clear()
            if self._caches.changes.stirs == self._told:
                continue
            self._told = self._caches.changes.stirs
            number = time.time_ns()
            self._signaller.offer(Signal(ids.cluster(self._cluster), SIGNAL, Stirred(number=number), str(number)))
            await asyncio.sleep(self._every)
