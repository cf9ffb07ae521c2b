"""Requests at the pace that the settings give: a burst at first, then so many a second."""

from kube.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Time is moved by the test, so that all who ask together wait together."""
        self.slept.append(round(seconds, 6))


def paced(clock: Clock, *, qps: float, burst: int) -> Pace:
    return Pace(qps, burst, clock=clock, sleep=clock.sleep)


async def test_a_burst_goes_at_once_and_the_rest_in_turn() -> None:
    clock = Clock()
    pace = paced(clock, qps=10, burst=3)
    for _ in range(6):
        await pace.turn()
    assert clock.slept == [0.1, 0.2, 0.3]


async def test_tokens_come_back_with_time_and_never_more_than_the_burst() -> None:
    clock = Clock()
    pace = paced(clock, qps=10, burst=2)
    for _ in range(3):
        await pace.turn()
    clock.now = 100.0
    for _ in range(3):
        await pace.turn()
    assert clock.slept == [0.1, 0.1]
