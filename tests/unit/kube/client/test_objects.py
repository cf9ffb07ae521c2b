"""Merge patches, conflicts, cached objects, and shared reads that start after the request."""

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
    """One object. Another client updates it before each of the next `busy` writes, which then fail with 409."""

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
        self._write_concurrently()
        if body["metadata"]["resourceVersion"] != self.item["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified")
        self.sent.append(body)
        self.item = {**self.item, **{key: value for key, value in body.items() if key != "metadata"}}
        return self.item

    async def request(self, method: str, path: str, *, body: Json | None = None) -> Json:
        """Deletion. It fails with 409 for another UID or while another client writes."""
        assert method == "DELETE" and self.item is not None
        if self.busy or (body and body["preconditions"]["uid"] != self.item["metadata"]["uid"]):
            raise Conflict("the precondition failed")
        return self.item

    def _write_concurrently(self) -> None:
        if self.busy and self.item is not None:
            self.busy -= 1
            version = str(int(self.item["metadata"]["resourceVersion"]) + 1)
            metadata = {**self.item["metadata"], "resourceVersion": version}
            self.item = {**self.item, "metadata": metadata, "theirs": self.item["theirs"] + 1}


def theirs_and_one(item: Json) -> Json:
    return {"ours": item["theirs"] + 1}


async def test_conflicting_patch_is_recomputed_from_the_current_object() -> None:
    api = Contended(busy=3)
    changed = await api.objects.patch_with_retry("c", theirs_and_one)
    assert changed is not None and (changed["theirs"], changed["ours"]) == (3, 4)
    assert [one["ours"] for one in api.sent] == [4]


async def test_repeated_conflicts_raise_conflict() -> None:
    api = Contended(busy=TRIES)
    with pytest.raises(Conflict):
        await api.objects.patch_with_retry("c", theirs_and_one)
    assert api.sent == []


async def test_object_with_another_uid_is_not_patched() -> None:
    api = Contended(uid="u2")
    assert await api.objects.patch_with_retry("c", theirs_and_one, uid="u1") is None
    assert api.sent == []


async def test_read_object_is_cached_until_the_ttl_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "CACHE_TTL_SECONDS", 0.5)
    api = Contended()
    known = api.objects
    await known.get("c")
    await known.patch_with_retry("c", theirs_and_one)
    assert api.reads == 1
    await asyncio.sleep(1.5)
    await known.patch_with_retry("c", theirs_and_one)
    assert api.reads == 2


async def test_object_is_read_again_after_its_finalizer_was_removed() -> None:
    """The object may be gone together with its last finalizer."""
    api = Contended()
    assert api.item is not None
    api.item["metadata"]["finalizers"] = ["tenure.sh/kept", "karpenter.sh/termination"]
    known = api.objects
    assert await known.drop_finalizer("c", "karpenter.sh/termination", uid="u1")
    assert api.sent[0]["metadata"]["finalizers"] == ["tenure.sh/kept"] and api.reads == 1
    await known.patch_with_retry("c", theirs_and_one)
    assert api.reads == 2


async def test_rejected_deletion_of_an_existing_object_raises_conflict() -> None:
    for uid in ("u1", ""):
        with pytest.raises(Conflict):
            await Contended(busy=1).objects.delete("c", uid=uid)


async def test_deletion_returns_false_if_another_object_has_the_name() -> None:
    assert await Contended(uid="u2").objects.delete("c", uid="u1") is False
    assert await Contended(uid="u1").objects.delete("c", uid="u1") is True


def test_merge_patch_contains_only_differences() -> None:
    old = {"kept": 1, "changed": 1, "gone": 1, "map": {"a": 1, "b": 2}, "list": [1]}
    desired = {"kept": 1, "changed": 2, "gone": None, "map": {"a": 1, "c": 3}, "list": [1], "never": None}
    assert merge_patch(old, desired) == {"changed": 2, "gone": None, "map": {"b": None, "c": 3}}
    assert merge_patch(old, {"map": {"b": 2, "a": 1}}) == {}


async def test_callers_during_a_read_share_the_next_read() -> None:
    began = 0
    may_end = asyncio.Event()

    async def read() -> int:
        nonlocal began
        began += 1
        number = began
        await may_end.wait()
        return number

    shared = SharedRead(read)
    first = asyncio.create_task(shared())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = [asyncio.create_task(shared()) for _ in range(20)]
    await asyncio.sleep(0)
    may_end.set()
    assert await first == 1
    assert await asyncio.gather(*late) == [2] * 20


async def test_cancelled_caller_does_not_cancel_the_shared_read() -> None:
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
