"""Memory without use is given back to the machine: glibc keeps what was freed, tens of megabytes after a scale-up."""

import asyncio
import ctypes
from typing import Any, Final

EVERY: Final = 60.0
"""Seconds. It takes milliseconds, in a thread, and of the interpreter's time nothing."""
ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h."""


def share_arenas() -> None:
    """Once, before there are threads: each would get an arena, and what is free in one is of no use to the others."""
    if tune := _glibc("mallopt"):
        tune(_M_ARENA_MAX, ARENAS)


async def give_back() -> None:
    """Until it is cancelled; at once where the system's allocator is another."""
    trim = _glibc("malloc_trim")
    while trim:
        await asyncio.sleep(EVERY)
        await asyncio.to_thread(trim, 0)


def _glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)
