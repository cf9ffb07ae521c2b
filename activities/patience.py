"""Passing faults of a call that is made again and again anyway: tried again for a while before anyone is told."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from model.faults import Throttled, TryLater

T = TypeVar("T")

LONGEST: Final = 30.0
"""Seconds after which a fault is not taken to be passing any more."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


async def patiently(
    call: Callable[[], Awaitable[T]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Raises every other fault at once, and one of these when it has lasted for half a minute."""
    begun, pause = clock(), _FIRST_PAUSE
    while True:
        try:
            return await call()
        except (TryLater, Throttled):
            if clock() - begun >= LONGEST:
                raise
        await sleep(pause * random.uniform(0.5, 1))
        pause = min(_LONGEST_PAUSE, 2 * pause)
