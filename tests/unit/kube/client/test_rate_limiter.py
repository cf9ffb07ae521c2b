"""Requests at the pace that the settings give: a burst at first, then so many a second; a crowd keeps nobody out."""

import asyncio
from contextvars import copy_context

from tenure.kube.client.rate_limiter import RateLimiter
from tenure.model.base import REQUEST_PRIORITY, RequestPriority


class Clock:
    """Time passes when somebody sleeps, and not before all others have done what they can."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.now += seconds


def build_rate_limiter(clock: Clock, *, qps: float, burst: int) -> RateLimiter:
    return RateLimiter(qps, burst, clock=clock, sleep=clock.sleep)


class ConcurrentCallers:
    """Many who ask at once: when each had its turn."""

    def __init__(self, rate_limiter: RateLimiter, clock: Clock) -> None:
        self._rate_limiter, self._clock = rate_limiter, clock
        self.acquisitions: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start_calls(self, count: int, request_class: RequestPriority = "") -> None:
        context = copy_context()
        context.run(REQUEST_PRIORITY.set, request_class)
        self.tasks += [asyncio.create_task(self._acquire(request_class), context=context.copy()) for _ in range(count)]

    async def _acquire(self, request_class: str) -> None:
        await self._rate_limiter.acquire()
        self.acquisitions.append((request_class, round(self._clock.now, 6)))

    async def wait_for_all(self) -> list[tuple[str, float]]:
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.acquisitions


async def test_a_burst_goes_at_once_and_the_rest_in_turn() -> None:
    clock = Clock()
    callers = ConcurrentCallers(build_rate_limiter(clock, qps=10, burst=3), clock)
    callers.start_calls(6)
    assert [at for _, at in await callers.wait_for_all()] == [0, 0, 0, 0.1, 0.2, 0.3]


async def test_tokens_come_back_with_time_and_never_more_than_the_burst() -> None:
    clock = Clock()
    rate_limiter = build_rate_limiter(clock, qps=10, burst=2)
    callers = ConcurrentCallers(rate_limiter, clock)
    callers.start_calls(3)
    await callers.wait_for_all()
    clock.now = 100.0
    later = ConcurrentCallers(rate_limiter, clock)
    later.start_calls(3)
    assert [at for _, at in await later.wait_for_all()] == [100, 100, 100.1]


async def test_who_comes_beside_a_crowd_has_every_other_turn() -> None:
    clock = Clock()
    callers = ConcurrentCallers(build_rate_limiter(clock, qps=10, burst=1), clock)
    callers.start_calls(20, "crowd")
    await asyncio.sleep(0)
    callers.start_calls(5)
    acquisitions = await callers.wait_for_all()
    assert [request_class for request_class, _ in acquisitions[:11]].count("") == 5
    assert len(acquisitions) == 25 and acquisitions[-1] == ("crowd", 2.4)


async def test_a_crowd_has_all_turns_that_nobody_else_wants() -> None:
    clock = Clock()
    callers = ConcurrentCallers(build_rate_limiter(clock, qps=10, burst=1), clock)
    callers.start_calls(11, "crowd")
    assert (await callers.wait_for_all())[-1] == ("crowd", 1.0)


async def test_a_turn_that_is_given_up_is_somebody_elses() -> None:
    clock = Clock()
    callers = ConcurrentCallers(build_rate_limiter(clock, qps=10, burst=1), clock)
    callers.start_calls(4)
    await asyncio.sleep(0)
    callers.tasks[2].cancel()
    assert [at for _, at in await callers.wait_for_all()] == [0, 0.1, 0.2]
