"""The same call for several things: in order, some at a time, and a fault waits for the others."""

import asyncio

import pytest

from activities.runtime import AT_ONCE, call_for_each
from tenure.model.errors import TryLater


async def test_answers_come_in_the_order_of_the_things_whichever_was_first() -> None:
    async def late(number: int) -> int:
        await asyncio.sleep((3 - number) / 100)
        return 10 * number

    assert await call_for_each((1, 2, 3), late) == [10, 20, 30]


@pytest.mark.parametrize("most", [None, 3])
async def test_no_more_than_some_are_under_way_together(most: int | None) -> None:
    under_way, max_concurrent = 0, 0

    async def call(_: int) -> None:
        nonlocal under_way, max_concurrent
        under_way += 1
        max_concurrent = max(max_concurrent, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    things = range(3 * AT_ONCE)
    await (call_for_each(things, call, at_once=most) if most else call_for_each(things, call))
    assert max_concurrent == (most or AT_ONCE)


async def test_the_first_fault_is_raised_when_all_others_are_done() -> None:
    done: list[int] = []

    async def call(number: int) -> None:
        if number < 2:
            raise TryLater(f"number {number}")
        await asyncio.sleep(0.01)
        done.append(number)

    with pytest.raises(TryLater, match="number 0"):
        await call_for_each(range(4), call)
    assert done == [2, 3]
