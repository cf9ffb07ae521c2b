"""Drains that begin together: pods are told to go from all of their nodes before anything else is written of one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

OTHERS_FIRST = 5.0
"""Seconds at most for which a drain that has pushed its pods waits for those that have not."""


class FirstLook:
    """Of one drain. `pushed` ends it."""

    def __init__(self, drains: "FirstLooks") -> None:
        self._drains = drains

    async def pushed(self) -> None:
        """Its pods have been told to go. The first time it returns when those of the others have, too."""
        if self._drains.end(self):
            await self._drains.others()


class FirstLooks:
    """Of all drains of a process."""

    def __init__(self) -> None:
        self._open: set[FirstLook] = set()
        self._none = asyncio.Event()
        self._none.set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[FirstLook]:
        look = FirstLook(self)
        self._open.add(look)
        self._none.clear()
        try:
            yield look
        finally:
            self.end(look)

    def end(self, look: FirstLook) -> bool:
        """False where it had ended before."""
        if look not in self._open:
            return False
        self._open.remove(look)
        if not self._open:
            self._none.set()
        return True

    async def others(self) -> None:
        """Until no drain is at its first look, or so long."""
        try:
            await asyncio.wait_for(self._none.wait(), OTHERS_FIRST)
        except TimeoutError:
            return
