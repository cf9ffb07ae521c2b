"""Requests at the pace that the settings give: a burst at first, then so many a second; a crowd keeps nobody out."""

import asyncio
from contextvars import copy_context

from tenure.kube.client.rate_limiter import Pace
from tenure.model.base import LANE, Lane


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


def paced(clock: Clock, *, qps: float, burst: int) -> Pace:
    return Pace(qps, burst, clock=clock, sleep=clock.sleep)


class Asked:
    """Many who ask at once: when each had its turn."""

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self._pace, self._clock = pace, clock
        self.turns: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, count: int, lane: Lane = "") -> None:
        context = copy_context()
        context.run(LANE.set, lane)
        self.tasks += [asyncio.create_task(self._turn(lane), context=context.copy()) for _ in range(count)]

    async def _turn(self, lane: str) -> None:
        await self._pace.turn()
        self.turns.append((lane, round(self._clock.now, 6)))

    async def all(self) -> list[tuple[str, float]]:
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.turns


async def test_a_burst_goes_at_once_and_the_rest_in_turn() -> None:
    clock = Clock()
    asked = Asked(paced(clock, qps=10, burst=3), clock)
    asked.ask(6)
    assert [at for _, at in await asked.all()] == [0, 0, 0, 0.1, 0.2, 0.3]


async def test_tokens_come_back_with_time_and_never_more_than_the_burst() -> None:
    clock = Clock()
    pace = paced(clock, qps=10, burst=2)
    asked = Asked(pace, clock)
    asked.ask(3)
    await asked.all()
    clock.now = 100.0
    later = Asked(pace, clock)
    later.ask(3)
    assert [at for _, at in await later.all()] == [100, 100, 100.1]


async def test_who_comes_beside_a_crowd_has_every_other_turn() -> None:
    clock = Clock()
    asked = Asked(paced(clock, qps=10, burst=1), clock)
    asked.ask(20, "crowd")
    await asyncio.sleep(0)
    asked.ask(5)
    turns = await asked.all()
    assert [lane for lane, _ in turns[:11]].count("") == 5
    assert len(turns) == 25 and turns[-1] == ("crowd", 2.4)


async def test_a_crowd_has_all_turns_that_nobody_else_wants() -> None:
    clock = Clock()
    asked = Asked(paced(clock, qps=10, burst=1), clock)
    asked.ask(11, "crowd")
    assert (await asked.all())[-1] == ("crowd", 1.0)


async def test_a_turn_that_is_given_up_is_somebody_elses() -> None:
    clock = Clock()
    asked = Asked(paced(clock, qps=10, burst=1), clock)
    asked.ask(4)
    await asyncio.sleep(0)
    asked.tasks[2].cancel()
    assert [at for _, at in await asked.all()] == [0, 0.1, 0.2]
