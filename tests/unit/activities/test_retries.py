"""Retries of a repeated call: the pauses between them, and the time after which a fault is raised."""

import pytest

from activities.runtime import MAX_RETRY_SECONDS, retry_transient
from tenure.model.errors import Forbidden, Throttled, TryLater


class Clock:
    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("fault", [TryLater, Throttled])
async def test_a_passing_fault_is_retried_ever_more_slowly_for_half_a_minute(
    fault: type[TryLater] | type[Throttled],
) -> None:
    clock = Clock()

    async def call() -> None:
        raise fault("503")

    with pytest.raises(fault):
        await retry_transient(call, sleep=clock.sleep, clock=clock)
    assert 0.25 <= clock.pauses[0] <= 0.5 and 0.5 <= clock.pauses[1] <= 1
    assert all(2.5 <= pause <= 5 for pause in clock.pauses[4:])
    assert MAX_RETRY_SECONDS <= clock.now < MAX_RETRY_SECONDS + 5


async def test_other_faults_are_raised_at_once() -> None:
    clock = Clock()

    async def call() -> None:
        raise Forbidden("no")

    with pytest.raises(Forbidden):
        await retry_transient(call, sleep=clock.sleep, clock=clock)
    assert clock.pauses == []
