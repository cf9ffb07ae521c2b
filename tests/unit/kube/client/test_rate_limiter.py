"""Requests are limited to a burst and a rate per second, and many calls of one class do not starve the others."""

import asyncio
from contextvars import copy_context

import pytest

from tenure.kube.client.rate_limiter import MAX_CONCURRENT_REQUESTS, RateLimiter
from tenure.model.base import REQUEST_PRIORITY, RequestPriority
from tests.support.virtual_time import in_virtual_time

QPS = 100


class ConcurrentCallers:
    """Sends requests of `seconds` concurrently and records the order and the waits in seconds."""

    def __init__(self, *, burst: int = 1, seconds: float = 0.0) -> None:
        self.waits: list[float] = []
        self._seconds, self.most, self.ended = seconds, 0, 0
        self._rate_limiter = RateLimiter(QPS, burst, observe_wait=self.waits.append)
        self.turns: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start_calls(self, count: int, request_class: RequestPriority = "") -> None:
        context = copy_context()
        context.run(REQUEST_PRIORITY.set, request_class)
        self.tasks += [asyncio.create_task(self._call(request_class), context=context.copy()) for _ in range(count)]

    async def _call(self, request_class: str) -> None:
        async with self._rate_limiter.slot():
            self.turns.append(request_class)
            self.most = max(self.most, len(self.turns) - self.ended)
            await asyncio.sleep(self._seconds)
            self.ended += 1

    async def wait_for_all(self) -> list[str]:
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.turns


def assert_waits(waits: list[float], *, burst: int, count: int) -> None:
    """The burst does not wait, and the later calls have the time that the rate allows."""
    assert waits[:burst] == [0.0] * burst
    assert waits[burst:] == pytest.approx([number / QPS for number in range(1, count - burst + 1)], abs=1e-3)


@in_virtual_time
async def test_burst_is_immediate_and_later_calls_wait() -> None:
    callers = ConcurrentCallers(burst=3)
    callers.start_calls(6)
    await callers.wait_for_all()
    assert_waits(callers.waits, burst=3, count=6)


@in_virtual_time
async def test_tokens_refill_up_to_the_burst() -> None:
    callers = ConcurrentCallers(burst=2)
    callers.start_calls(3)
    await callers.wait_for_all()
    await asyncio.sleep(10 / QPS)
    callers.waits.clear()
    callers.start_calls(3)
    await callers.wait_for_all()
    assert_waits(callers.waits, burst=2, count=3)


@in_virtual_time
async def test_classes_alternate_when_one_has_many_calls() -> None:
    callers = ConcurrentCallers()
    callers.start_calls(20, "bulk")
    await asyncio.sleep(0)
    callers.start_calls(5)
    turns = await callers.wait_for_all()
    assert turns[:11].count("") == 5
    assert len(turns) == 25 and turns[-1] == "bulk"


@in_virtual_time
async def test_single_class_uses_the_full_rate() -> None:
    callers = ConcurrentCallers()
    callers.start_calls(11, "bulk")
    assert await callers.wait_for_all() == ["bulk"] * 11
    assert_waits(callers.waits, burst=1, count=11)


@in_virtual_time
async def test_turn_of_a_cancelled_call_goes_to_the_next() -> None:
    callers = ConcurrentCallers()
    callers.start_calls(140)
    await asyncio.sleep(0)
    for task in callers.tasks[2:139]:
        task.cancel()
    await callers.wait_for_all()
    assert_waits(callers.waits, burst=1, count=3)


@in_virtual_time
async def test_request_overtakes_mass_requests_that_wait_for_a_slow_server() -> None:
    callers = ConcurrentCallers(burst=300, seconds=1.0)
    callers.start_calls(300, "bulk")
    await asyncio.sleep(0.5)
    callers.start_calls(1)
    turns = await callers.wait_for_all()
    assert callers.most == MAX_CONCURRENT_REQUESTS
    # The requests that are sent already, and at most one of each other queue.
    assert turns.index("") <= MAX_CONCURRENT_REQUESTS + 1


@in_virtual_time
async def test_rate_stays_bounded_after_a_slow_server_recovers() -> None:
    callers = ConcurrentCallers(burst=10, seconds=60.0)
    callers.start_calls(1000)
    await asyncio.sleep(30)
    callers._seconds = 0.0
    await asyncio.sleep(31)
    # Tokens for a minute have not accumulated: the burst, and one second of the rate.
    assert MAX_CONCURRENT_REQUESTS < len(callers.turns) <= MAX_CONCURRENT_REQUESTS + 10 + QPS + 1
    await callers.wait_for_all()


@in_virtual_time
async def test_cancelled_calls_leave_no_slot_occupied() -> None:
    callers = ConcurrentCallers(burst=1000, seconds=1.0)
    callers.start_calls(200)
    await asyncio.sleep(0.5)
    for task in callers.tasks[:100]:
        task.cancel()
    await asyncio.sleep(0)
    for task in callers.tasks[100:]:
        task.cancel()
    await callers.wait_for_all()
    callers.turns.clear()
    callers.start_calls(MAX_CONCURRENT_REQUESTS)
    await asyncio.sleep(0.1)
    assert len(callers.turns) == MAX_CONCURRENT_REQUESTS
    await callers.wait_for_all()
