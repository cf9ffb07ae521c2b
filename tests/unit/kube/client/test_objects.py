"""Merge patches, what a 409 means, and reads that are shared but never older than the question."""

import asyncio
from typing import Any, cast

import pytest

from tenure.kube.client import objects
from tenure.kube.client.client import KubeClient
from tenure.kube.client.objects import TRIES, Objects, SharedRead, merge_patch
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.errors import Conflict

Json = dict[str, Any]


class Contended:
    """One object, which somebody else writes to before each of the next `busy` writes; those are refused by 409."""

    def __init__(self, uid: str = "u1", busy: int = 0) -> None:
        self.item: Json | None = {"metadata": {"name": "c", "uid": uid, "resourceVersion": "1"}, "theirs": 0}
        self.busy = busy
        self.reads = 0
        self.sent: list[Json] = []

    @property
    def objects(self) -> Objects:
        return Objects(cast(KubeClient, self), NODE_CLAIMS)

    async def get(self, path: str) -> Json | None:
        self.reads += 1
        return self.item

    async def merge(self, path: str, body: Json) -> Json:
        assert self.item is not None
        self._meddle()
        if body["metadata"]["resourceVersion"] != self.item["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified")
        self.sent.append(body)
        self.item = {**self.item, **{key: value for key, value in body.items() if key != "metadata"}}
        return self.item

    async def request(self, method: str, path: str, *, body: Json | None = None) -> Json:
        """Only deletion, which is refused for another UID, or while somebody writes."""
        assert method == "DELETE" and self.item is not None
        if self.busy or (body and body["preconditions"]["uid"] != self.item["metadata"]["uid"]):
            raise Conflict("the precondition failed")
        return self.item

    def _meddle(self) -> None:
        if self.busy and self.item is not None:
            self.busy -= 1
            version = str(int(self.item["metadata"]["resourceVersion"]) + 1)
            metadata = {**self.item["metadata"], "resourceVersion": version}
            self.item = {**self.item, "metadata": metadata, "theirs": self.item["theirs"] + 1}


def theirs_and_one(item: Json) -> Json:
    return {"ours": item["theirs"] + 1}


async def test_a_change_that_is_refused_is_decided_again_on_what_stands_then() -> None:
    api = Contended(busy=3)
    changed = await api.objects.patch_with_retry("c", theirs_and_one)
    assert changed is not None and (changed["theirs"], changed["ours"]) == (3, 4)
    assert [one["ours"] for one in api.sent] == [4]


async def test_a_change_that_is_refused_again_and_again_is_a_conflict_and_no_absence() -> None:
    api = Contended(busy=TRIES)
    with pytest.raises(Conflict):
        await api.objects.patch_with_retry("c", theirs_and_one)
    assert api.sent == []


async def test_a_change_for_one_that_another_has_taken_the_name_of_is_not_made() -> None:
    api = Contended(uid="u2")
    assert await api.objects.patch_with_retry("c", theirs_and_one, uid="u1") is None
    assert api.sent == []


async def test_what_was_read_is_known_for_a_while_and_forgotten_where_nothing_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "CACHE_TTL_SECONDS", 0.5)
    api = Contended()
    known = api.objects
    await known.get("c")
    await known.patch_with_retry("c", theirs_and_one)
    assert api.reads == 1
    await asyncio.sleep(1.5)
    await known.patch_with_retry("c", theirs_and_one)
    assert api.reads == 2


async def test_an_object_whose_finalizer_was_removed_is_read_again_before_the_next_change() -> None:
    """It may be gone with its last finalizer."""
    api = Contended()
    assert api.item is not None
    api.item["metadata"]["finalizers"] = ["tenure.sh/kept", "karpenter.sh/termination"]
    known = api.objects
    assert await known.drop_finalizer("c", "karpenter.sh/termination", uid="u1")
    assert api.sent[0]["metadata"]["finalizers"] == ["tenure.sh/kept"] and api.reads == 1
    await known.patch_with_retry("c", theirs_and_one)
    assert api.reads == 2


async def test_a_deletion_that_is_refused_though_the_object_is_there_is_a_conflict_and_no_deletion() -> None:
    for uid in ("u1", ""):
        with pytest.raises(Conflict):
            await Contended(busy=1).objects.delete("c", uid=uid)


async def test_a_deletion_that_is_refused_since_another_has_the_name_means_that_it_is_gone() -> None:
    assert await Contended(uid="u2").objects.delete("c", uid="u1") is False
    assert await Contended(uid="u1").objects.delete("c", uid="u1") is True


def test_a_patch_holds_only_what_differs() -> None:
    old = {"kept": 1, "changed": 1, "gone": 1, "map": {"a": 1, "b": 2}, "list": [1]}
    desired = {"kept": 1, "changed": 2, "gone": None, "map": {"a": 1, "c": 3}, "list": [1], "never": None}
    assert merge_patch(old, desired) == {"changed": 2, "gone": None, "map": {"b": None, "c": 3}}
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
