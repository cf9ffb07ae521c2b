"""The DelayingQueue, SingleFlight, and the consolidation part of a NodePool view."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tenure.controller.cache.dirty import DelayingQueue, SingleFlight, pool_view
from tenure.model.errors import TryLater
from tests.support.controller.builders import at, pool


def test_key_is_due_once_at_the_time_scheduled_last() -> None:
    due = DelayingQueue()
    due.schedule("a", at(1))
    due.schedule("a", at(5))
    due.schedule("b", at(3))
    assert due.pop_due(at(2)) == [] and due.next_due_at() == at(3)
    assert due.pop_due(at(4)) == ["b"] and due.next_due_at() == at(5)
    assert due.pop_due(at(9)) == ["a"] and due.next_due_at() is None


def test_key_can_be_removed_or_scheduled_earlier() -> None:
    due = DelayingQueue()
    due.schedule("a", at(5))
    due.schedule("b", at(6))
    due.schedule("a", None)
    due.schedule("b", at(1))
    assert due.pop_due(at(10)) == ["b"] and due.next_due_at() is None


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


POLICY = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}


def test_consolidation_view_has_policy_and_delay() -> None:
    assert pool_view(pool(disruption=POLICY)).consolidation == "WhenEmpty/30s"


def test_static_pool_never_consolidates_empty_nodes() -> None:
    assert pool_view(pool(disruption=POLICY, replicas=3)).consolidation == "WhenEmpty/Never"
