"""Answers that may be used again for a while. Only speed rests on it: what is gone is asked for again."""

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Expiring(Generic[V]):
    """Values by key, each for `seconds`; with `sliding` a use counts as new."""

    def __init__(
        self, seconds: float, *, sliding: bool = False, clock: Callable[[], float] = time.monotonic, limit: int = 4096
    ) -> None:
        self._seconds, self._sliding, self._clock, self._limit = seconds, sliding, clock, limit
        self._held: dict[Hashable, tuple[float, V]] = {}

    def get(self, key: Hashable) -> V | None:
        held = self._held.get(key)
        if held is None or held[0] <= self._clock():
            self._held.pop(key, None)
            return None
        if self._sliding:
            self.put(key, held[1])
        return held[1]

    def put(self, key: Hashable, value: V) -> None:
        if len(self._held) >= self._limit:
            self._sweep()
        self._held[key] = (self._clock() + self._seconds, value)

    def forget(self, key: Hashable) -> None:
        self._held.pop(key, None)

    def clear(self) -> None:
        self._held.clear()

    async def get_or(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        """What is held, or what `ask` answers, which is then held."""
        held = self.get(key)
        if held is None:
            held = await ask()
            self.put(key, held)
        return held

    def _sweep(self) -> None:
        now = self._clock()
        self._held = {key: held for key, held in self._held.items() if held[0] > now}
        if len(self._held) >= self._limit:
            self._held.clear()
