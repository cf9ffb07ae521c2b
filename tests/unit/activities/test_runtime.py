"""Faults as Temporal errors, concurrent calls, and retries of transient faults."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities.runtime import (
    AT_ONCE,
    MAX_RETRY_SECONDS,
    as_application_error,
    call_for_each,
    map_faults,
    retry_transient,
)
from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound, Throttled, TryLater

TABLE: dict[type[Fault], tuple[bool, timedelta | None]] = {
    Throttled: (True, None),
    TryLater: (True, None),
    Conflict: (True, None),
    Forbidden: (True, timedelta(seconds=20)),
    NotFound: (False, None),
    BadInput: (False, None),
}


def test_table_has_every_fault_class() -> None:
    assert set(TABLE) == {one for one in Fault.__subclasses__() if one.__module__ == Fault.__module__}


@pytest.mark.parametrize("kind", TABLE)
def test_fault_class_decides_retry(kind: type[Fault]) -> None:
    retried, pause = TABLE[kind]
    error = as_application_error(kind("no", code="Code"))
    assert error.type == kind.__name__
    assert error.non_retryable is not retried
    assert error.next_retry_delay == pause


@pytest.mark.parametrize("kind", [Throttled, Forbidden])
def test_retry_after_of_fault_is_used(kind: type[Fault]) -> None:
    assert as_application_error(kind("no", retry_after=7)).next_retry_delay == timedelta(seconds=7)


def test_error_message_starts_with_code_and_is_truncated() -> None:
    assert as_application_error(TryLater("later", code="InternalError")).message == "InternalError: later"
    assert as_application_error(TryLater("later")).message == "later"
    assert len(as_application_error(BadInput("x" * 5000)).message) == 300


async def test_activities_map_faults_but_not_bugs() -> None:
    @map_faults
    async def call(error: Exception | None) -> str:
        if error is not None:
            raise error
        return "done"

    assert await call(None) == "done"
    with pytest.raises(ApplicationError, match="gone") as fault:
        await call(NotFound("gone"))
    assert isinstance(fault.value.__cause__, NotFound)
    with pytest.raises(KeyError):
        await call(KeyError("a bug"))


async def test_results_keep_input_order() -> None:
    async def late(number: int) -> int:
        await asyncio.sleep((3 - number) / 100)
        return 10 * number

    assert await call_for_each((1, 2, 3), late) == [10, 20, 30]


@pytest.mark.parametrize("limit", [None, 3])
async def test_concurrent_calls_are_limited(limit: int | None) -> None:
    under_way, max_concurrent = 0, 0

    async def call(_: int) -> None:
        nonlocal under_way, max_concurrent
        under_way += 1
        max_concurrent = max(max_concurrent, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    things = range(3 * AT_ONCE)
    await (call_for_each(things, call, at_once=limit) if limit else call_for_each(things, call))
    assert max_concurrent == (limit or AT_ONCE)


async def test_first_fault_is_raised_after_all_calls() -> None:
    done: list[int] = []

    async def call(number: int) -> None:
        if number < 2:
            raise TryLater(f"number {number}")
        await asyncio.sleep(0.01)
        done.append(number)

    with pytest.raises(TryLater, match="number 0"):
        await call_for_each(range(4), call)
    assert done == [2, 3]


class Clock:
    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("fault", [TryLater, Throttled])
async def test_transient_fault_is_retried_with_backoff_for_half_a_minute(
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


async def test_other_faults_are_not_retried() -> None:
    clock = Clock()

    async def call() -> None:
        raise Forbidden("no")

    with pytest.raises(Forbidden):
        await retry_transient(call, sleep=clock.sleep, clock=clock)
    assert clock.pauses == []
