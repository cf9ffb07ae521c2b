"""Caches of AWS responses. They only save calls: a missing entry is requested again."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_ENTRIES: Final = 4096


async def get_or_load(cache: MutableMapping[K, V], key: K, load: Callable[[], Awaitable[V]]) -> V:
    value = cache.get(key)
    if value is None:
        value = cache[key] = await load()
    return value
