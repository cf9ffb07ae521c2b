"""Work that outlives who asked for it, and is joined by who asks again."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tenure.controller.cache.dirty import SingleFlight
from tenure.model.errors import TryLater


def counted(gate: asyncio.Event) -> tuple[list[int], Callable[[], Coroutine[Any, Any, int]]]:
    begun: list[int] = []

    async def begin() -> int:
        begun.append(1)
        await gate.wait()
        return len(begun)

    return begun, begin


async def test_a_second_asking_joins_the_first_also_when_that_was_given_up() -> None:
    joined, gate = SingleFlight(), asyncio.Event()
    begun, begin = counted(gate)
    first = asyncio.create_task(joined.run("a", begin))
    await asyncio.sleep(0)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    second, other = asyncio.create_task(joined.run("a", begin)), asyncio.create_task(joined.run("b", begin))
    await asyncio.sleep(0)
    gate.set()
    assert (await second, await other) == (2, 2) and len(begun) == 2
    assert await joined.run("a", begin) == 3, "what is over is done anew"


async def test_who_waits_when_all_ends_is_told_to_try_later() -> None:
    joined = SingleFlight()
    _, begin = counted(asyncio.Event())
    waiting = asyncio.create_task(joined.run("a", begin))
    await asyncio.sleep(0)
    await joined.close()
    with pytest.raises(TryLater):
        await waiting
