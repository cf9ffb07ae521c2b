"""One call for many callers, and the result of each caller."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from tenure.aws.client.request_batcher import Batcher
from tenure.model.errors import Throttled


class Counter:
    """Returns doubled keys and records the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    async def run(self, keys: Sequence[int]) -> Mapping[int, int]:
        self.batches.append(sorted(keys))
        return {key: key * 2 for key in keys if key != 13}


def batcher(counter: Counter, *, idle: float = 0.01, longest: float = 5.0, size: int = 100) -> Batcher[int, int]:
    return Batcher(counter.run, idle=idle, longest=longest, size=size)


async def test_callers_in_one_window_share_a_call() -> None:
    counter = Counter()
    one = batcher(counter)
    assert await asyncio.gather(*(one.fetch(key) for key in (1, 2, 3, 2))) == [2, 4, 6, 4]
    assert counter.batches == [[1, 2, 3]]


async def test_key_without_result_is_none() -> None:
    assert await batcher(Counter()).fetch(13) is None


async def test_full_window_closes_at_once() -> None:
    counter = Counter()
    one = batcher(counter, idle=60, longest=60, size=2)
    await asyncio.gather(*(one.fetch(key) for key in range(4)))
    assert counter.batches == [[0, 1], [2, 3]]


async def test_busy_window_closes_after_longest_time() -> None:
    counter = Counter()
    one = batcher(counter, idle=0.03, longest=0.1)
    tasks = []
    for key in range(40):
        tasks.append(asyncio.create_task(one.fetch(key)))
        await asyncio.sleep(0.01)
        if counter.batches:
            break
    await asyncio.gather(*tasks)
    assert len(counter.batches[0]) < 40


async def test_fault_reaches_all_callers_of_its_window_only() -> None:
    calls = 0

    async def run(keys: Sequence[int]) -> Mapping[int, int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Throttled("too much")
        return dict.fromkeys(keys, 1)

    one: Batcher[int, int] = Batcher(run, idle=0.01, longest=1, size=10)
    found = await asyncio.gather(one.fetch(1), one.fetch(2), return_exceptions=True)
    assert [type(result) for result in found] == [Throttled, Throttled]
    assert await one.fetch(1) == 1


async def test_cancelled_caller_does_not_affect_others() -> None:
    one = batcher(Counter())
    cancelled, remaining = asyncio.create_task(one.fetch(1)), asyncio.create_task(one.fetch(1))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await remaining == 2
    with pytest.raises(asyncio.CancelledError):
        await cancelled
