"""SSM parameters with image IDs, published by AWS or by the user.

A missing parameter is a valid result. While a parameter cannot be read, its last known value is used.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

import structlog
from cachetools import LRUCache, TTLCache

from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.model.errors import NotFound, Throttled, TryLater

_log = structlog.get_logger(__name__)

_PUBLISHED_SECONDS: Final = 24 * 3600.0
_CUSTOM_SECONDS: Final = 300.0
_MISSING_SECONDS: Final = 300.0
_INVALIDATION_SECONDS: Final = 1800.0
"""Minimum interval between early refreshes of a parameter."""


class Parameters:
    """Raises model.faults if a parameter has no known value and cannot be read."""

    def __init__(self, clients: AwsClients, clock: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._published: TTLCache[str, str] = TTLCache(MAX_ENTRIES, _PUBLISHED_SECONDS, timer=clock)
        self._custom: TTLCache[str, str] = TTLCache(MAX_ENTRIES, _CUSTOM_SECONDS, timer=clock)
        self._missing: TTLCache[str, bool] = TTLCache(MAX_ENTRIES, _MISSING_SECONDS, timer=clock)
        self._invalidated: TTLCache[str, bool] = TTLCache(MAX_ENTRIES, _INVALIDATION_SECONDS, timer=clock)
        self._last: LRUCache[str, str] = LRUCache(MAX_ENTRIES)
        self._read_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get_published(self, path: str) -> str:
        """Value of one of AWS's parameters, cached for a day. Empty if the parameter does not exist."""
        return await self._get_value(path, self._published)

    async def get_custom(self, name: str) -> str:
        """Value of an EC2NodeClass's parameter, by name or ARN, cached for five minutes. Empty if it does not exist."""
        return await self._get_value(name, self._custom)

    def invalidate(self, path: str) -> bool:
        """Drop the cached value, because its image is deprecated or missing.

        False if the parameter was invalidated within the last half hour: its cached value stays.
        """
        if self._invalidated.get(path):
            return False
        self._invalidated[path] = True
        self._published.pop(path, None)
        return True

    async def _get_value(self, name: str, cache: TTLCache[str, str]) -> str:
        async with self._read_locks.setdefault(name, asyncio.Lock()):
            if self._missing.get(name):
                return ""
            try:
                return await get_or_load(cache, name, lambda: self._read(name))
            except NotFound:
                self._missing[name] = True
                self._last.pop(name, None)
                return ""
            except (Throttled, TryLater) as fault:
                if name not in self._last:
                    raise
                _log.warning("failed to read parameter, using its last value", parameter=name, reason=fault.message)
                return self._last[name]

    async def _read(self, name: str) -> str:
        response = await self._clients.call(self._clients.ssm.get_parameter, Name=name)
        value = self._last[name] = str(response["Parameter"].get("Value", ""))
        return value
