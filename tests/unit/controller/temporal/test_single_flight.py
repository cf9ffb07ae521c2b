import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tenure.controller.temporal.single_flight import SingleFlight
from tenure.model.errors import TryLater


def count_runs(gate: asyncio.Event) -> tuple[list[int], Callable[[], Coroutine[Any, Any, int]]]:
    runs: list[int] = []

    async def start() -> int:
        runs.append(1)
        await gate.wait()
        return len(runs)

    return runs, start


async def test_second_call_joins_the_running_one_even_after_its_cancellation() -> None:
    flight, gate = SingleFlight(), asyncio.Event()
    runs, start = count_runs(gate)
    first = asyncio.create_task(flight.run("a", start))
    await asyncio.sleep(0)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    second, other = asyncio.create_task(flight.run("a", start)), asyncio.create_task(flight.run("b", start))
    await asyncio.sleep(0)
    gate.set()
    assert (await second, await other) == (2, 2) and len(runs) == 2
    assert await flight.run("a", start) == 3, "a finished run is not reused"


async def test_close_raises_try_later_for_waiting_callers() -> None:
    flight = SingleFlight()
    _, start = count_runs(asyncio.Event())
    waiting = asyncio.create_task(flight.run("a", start))
    await asyncio.sleep(0)
    await flight.close()
    with pytest.raises(TryLater):
        await waiting
