"""What several tasks of upkeep read at about the same time is read once: a list of a thousand takes half a second.

Tasks run together, by the jitter of their Schedules. Whoever asks for a list of lately must decide nothing by what is
missing in it that it does not look at again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from activities.ports import Instances
from activities.upkeep_ports import Inventory
from model.outcomes import InstanceFacts
from model.upkeep import ClaimMark

T = TypeVar("T")
LATELY: Final = 20.0
"""Seconds for which a list may be used again, and is kept: nearly all of what the jitter puts between two tasks."""


class Shared(Generic[T]):
    """One kind of list. Raises whatever the reading of it raises."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[T]]]) -> None:
        self._read, self._turn = read, asyncio.Lock()
        self._kept: Sequence[T] | None = None
        self._forgetting: asyncio.TimerHandle | None = None

    async def anew(self) -> Sequence[T]:
        """As it is now."""
        async with self._turn:
            return await self._fetch()

    async def lately(self) -> Sequence[T]:
        """As it was not longer than `LATELY` ago."""
        async with self._turn:
            return await self._fetch() if self._kept is None else self._kept

    async def _fetch(self) -> Sequence[T]:
        """Its age is counted from before it was read."""
        began = asyncio.get_running_loop().time()
        found = await self._read()
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._kept = found
        self._forgetting = asyncio.get_running_loop().call_at(began + LATELY, self._forget)
        return found

    def _forget(self) -> None:
        self._kept, self._forgetting = None, None


class Lists:
    """Those that more than one task asks for."""

    def __init__(self, *, instances: Instances, inventory: Inventory) -> None:
        self.instances: Shared[InstanceFacts] = Shared(instances.list_managed)
        self.claims: Shared[ClaimMark] = Shared(inventory.claims)
