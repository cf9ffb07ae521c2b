"""Caches of AWS responses. They only save calls: a missing entry is requested again."""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Final, Generic, TypeVar

import structlog

from tenure.model.errors import Fault

_log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")

MAX_ENTRIES: Final = 4096


async def get_or_load(cache: MutableMapping[K, V], key: K, load: Callable[[], Awaitable[V]]) -> V:
    value = cache.get(key)
    if value is None:
        value = cache[key] = await load()
    return value


class LastKnown(Generic[V]):
    """One response. While AWS answers with one of `faults`, the last one is kept."""

    def __init__(
        self,
        what: str,
        load: Callable[[], Awaitable[V]],
        fresh_seconds: float,
        *,
        faults: tuple[type[Fault], ...] = (Fault,),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what`: the subject of the log line."""
        self._what, self._load, self._fresh_seconds = what, load, fresh_seconds
        self._faults, self._clock = faults, clock
        self._last: V | None = None
        self._fresh_until = 0.0

    async def read(self) -> V:
        """Raises the fault if no earlier request has succeeded."""
        if self._last is not None and self._clock() < self._fresh_until:
            return self._last
        try:
            self._last = await self._load()
        except self._faults as fault:
            if self._last is None:
                raise
            _log.warning(f"failed to read {self._what}, using the last known", reason=fault.message)
        self._fresh_until = self._clock() + self._fresh_seconds
        return self._last
