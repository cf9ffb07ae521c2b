"""Merge patches, and reads that are shared but never older than the question."""

import asyncio

from kube.objects import merge_patch
from kube.shared import SharedRead


def test_a_patch_holds_only_what_differs() -> None:
    old = {"kept": 1, "changed": 1, "gone": 1, "map": {"a": 1, "b": 2}, "list": [1]}
    wanted = {"kept": 1, "changed": 2, "gone": None, "map": {"a": 1, "c": 3}, "list": [1], "never": None}
    assert merge_patch(old, wanted) == {"changed": 2, "gone": None, "map": {"b": None, "c": 3}}
    assert merge_patch(old, {"map": {"b": 2, "a": 1}}) == {}


async def test_who_asks_during_a_read_shares_the_next_one() -> None:
    began = 0
    may_end = asyncio.Event()

    async def read() -> int:
        nonlocal began
        began += 1
        mine = began
        await may_end.wait()
        return mine

    shared = SharedRead(read)
    first = asyncio.create_task(shared())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = [asyncio.create_task(shared()) for _ in range(20)]
    await asyncio.sleep(0)
    may_end.set()
    assert await first == 1
    assert await asyncio.gather(*late) == [2] * 20


async def test_a_caller_that_gives_up_takes_the_answer_from_nobody() -> None:
    may_end = asyncio.Event()

    async def read() -> str:
        await may_end.wait()
        return "answer"

    shared = SharedRead(read)
    one, other = asyncio.create_task(shared()), asyncio.create_task(shared())
    await asyncio.sleep(0)
    one.cancel()
    may_end.set()
    assert await other == "answer"
