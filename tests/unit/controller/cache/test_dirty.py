"""Times to look again, work that is joined, and a NodePool as its nodes are told of it."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tenure.controller.cache.dirty import DelayingQueue, SingleFlight, pool_view
from tenure.model.errors import TryLater
from tests.support.controller.builders import at, pool


def test_a_key_is_due_once_at_the_time_set_last() -> None:
    due = DelayingQueue()
    due.schedule("a", at(1))
    due.schedule("a", at(5))
    due.schedule("b", at(3))
    assert due.pop_due(at(2)) == [] and due.next_due_at() == at(3)
    assert due.pop_due(at(4)) == ["b"] and due.next_due_at() == at(5)
    assert due.pop_due(at(9)) == ["a"] and due.next_due_at() is None


def test_a_key_can_be_taken_back_or_moved_forward() -> None:
    due = DelayingQueue()
    due.schedule("a", at(5))
    due.schedule("b", at(6))
    due.schedule("a", None)
    due.schedule("b", at(1))
    assert due.pop_due(at(10)) == ["b"] and due.next_due_at() is None


def counted(gate: asyncio.Event) -> tuple[list[int], Callable[[], Coroutine[Any, Any, int]]]:
    begun: list[int] = []

    async def begin() -> int:
        begun.append(1)
        await gate.wait()
        return len(begun)

    return begun, begin


async def test_a_second_asking_joins_the_first_also_when_that_was_given_up() -> None:
    joined, gate = SingleFlight(), asyncio.Event()
    begun, begin = counted(gate)
    first = asyncio.create_task(joined.run("a", begin))
    await asyncio.sleep(0)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    second, other = asyncio.create_task(joined.run("a", begin)), asyncio.create_task(joined.run("b", begin))
    await asyncio.sleep(0)
    gate.set()
    assert (await second, await other) == (2, 2) and len(begun) == 2
    assert await joined.run("a", begin) == 3, "what is over is done anew"


async def test_who_waits_when_all_ends_is_told_to_try_later() -> None:
    joined = SingleFlight()
    _, begin = counted(asyncio.Event())
    waiting = asyncio.create_task(joined.run("a", begin))
    await asyncio.sleep(0)
    await joined.close()
    with pytest.raises(TryLater):
        await waiting


POLICY = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}


def test_a_pool_that_shrinks_says_after_how_long() -> None:
    assert pool_view(pool(disruption=POLICY)).consolidation == "WhenEmpty/30s"


def test_a_static_pool_never_lets_an_empty_node_go() -> None:
    assert pool_view(pool(disruption=POLICY, replicas=3)).consolidation == "WhenEmpty/Never"
