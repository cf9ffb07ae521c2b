"""Requests at the pace that the settings give: a burst at first, then so many a second; a crowd keeps nobody out."""

import asyncio
from contextvars import copy_context

from tenure.kube.client.rate_limiter import RateLimiter
from tenure.model.base import REQUEST_PRIORITY, RequestPriority

QPS = 100


class ConcurrentCallers:
    """Many who ask at once: in which order they had their turns, and after how many seconds."""

    def __init__(self, *, burst: int = 1) -> None:
        self.waits: list[float] = []
        self._rate_limiter = RateLimiter(QPS, burst, observe_wait=self.waits.append)
        self.turns: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start_calls(self, count: int, request_class: RequestPriority = "") -> None:
        context = copy_context()
        context.run(REQUEST_PRIORITY.set, request_class)
        self.tasks += [asyncio.create_task(self._acquire(request_class), context=context.copy()) for _ in range(count)]

    async def _acquire(self, request_class: str) -> None:
        await self._rate_limiter.acquire()
        self.turns.append(request_class)

    async def wait_for_all(self) -> list[str]:
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.turns


def assert_waits(waits: list[float], *, burst: int, count: int) -> None:
    """The burst at once, and each later turn no earlier than the pace allows."""
    assert len(waits) == count and waits[:burst] == [0.0] * burst
    assert all(wait >= 0.9 * number / QPS for number, wait in enumerate(waits[burst:], start=1))


async def test_a_burst_goes_at_once_and_the_rest_in_turn() -> None:
    callers = ConcurrentCallers(burst=3)
    callers.start_calls(6)
    await callers.wait_for_all()
    assert_waits(callers.waits, burst=3, count=6)
    assert callers.waits[-1] < 1


async def test_tokens_come_back_with_time_and_never_more_than_the_burst() -> None:
    callers = ConcurrentCallers(burst=2)
    callers.start_calls(3)
    await callers.wait_for_all()
    await asyncio.sleep(10 / QPS)
    callers.waits.clear()
    callers.start_calls(3)
    await callers.wait_for_all()
    assert_waits(callers.waits, burst=2, count=3)


async def test_who_comes_beside_a_crowd_has_every_other_turn() -> None:
    callers = ConcurrentCallers()
    callers.start_calls(20, "crowd")
    await asyncio.sleep(0)
    callers.start_calls(5)
    turns = await callers.wait_for_all()
    assert turns[:11].count("") == 5
    assert len(turns) == 25 and turns[-1] == "crowd"


async def test_a_crowd_has_all_turns_that_nobody_else_wants() -> None:
    callers = ConcurrentCallers()
    callers.start_calls(11, "crowd")
    assert await callers.wait_for_all() == ["crowd"] * 11
    assert_waits(callers.waits, burst=1, count=11)


async def test_a_turn_that_is_given_up_is_somebody_elses() -> None:
    callers = ConcurrentCallers()
    callers.start_calls(140)
    await asyncio.sleep(0)
    for task in callers.tasks[2:139]:
        task.cancel()
    await callers.wait_for_all()
    assert_waits(callers.waits, burst=1, count=3)
    assert callers.waits[-1] < 1
