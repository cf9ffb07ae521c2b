"""The same call for several things, some at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

AT_ONCE: Final = 16
T = TypeVar("T")
R = TypeVar("R")


async def each(ones: Iterable[T], call: Callable[[T], Awaitable[R]], *, at_once: int = AT_ONCE) -> list[R]:
    """In their order. A fault of one keeps none of the others from being done; the first is raised after all."""
    room = asyncio.Semaphore(at_once)

    async def one(item: T) -> R:
        async with room:
            return await call(item)

    results: list[R] = []
    for result in await asyncio.gather(*(one(item) for item in ones), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
