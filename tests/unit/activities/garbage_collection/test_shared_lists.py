"""Lists that concurrent garbage-collection tasks share, and lists that must be fresh."""

import asyncio

import pytest

from activities.garbage_collection import base
from activities.garbage_collection.base import SharedList, SharedLists
from tenure.model.errors import Throttled
from tests.unit.activities.builders import FakeCluster, run_collection


class CountingReader:
    def __init__(self) -> None:
        self.times = 0
        self.faults: list[Exception] = []

    async def read(self) -> list[int]:
        self.times += 1
        await asyncio.sleep(0)
        if self.faults:
            raise self.faults.pop()
        return [self.times]


async def test_concurrent_reads_share_one_list() -> None:
    reading = CountingReader()
    shared = SharedList(reading.read)
    assert list(await asyncio.gather(shared.read_cached(), shared.read_cached())) == [[1], [1]]
    assert await shared.read_cached() == [1] and reading.times == 1


async def test_fresh_read_replaces_cached_list() -> None:
    shared = SharedList(CountingReader().read)
    assert (await shared.read_cached(), await shared.read_fresh(), await shared.read_cached()) == ([1], [2], [2])


async def test_cached_list_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CACHE_SECONDS", 0.01)
    shared = SharedList(CountingReader().read)
    assert await shared.read_cached() == [1]
    await asyncio.sleep(0.05)
    assert await shared.read_cached() == [2]


async def test_fault_is_not_cached() -> None:
    reading = CountingReader()
    reading.faults = [Throttled("slow down")]
    shared = SharedList(reading.read)
    with pytest.raises(Throttled):
        await shared.read_cached()
    assert await shared.read_cached() == [2]


async def test_nodeclaim_created_after_instance_list_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its instance would be terminated: NodeClaims are read after the instances, whatever the cache has."""
    cluster = FakeCluster()
    lists = SharedLists(cluster.build_ports())
    monkeypatch.setattr(FakeCluster, "lists", lists)
    assert await lists.claims.read_cached() == []
    cluster.add_nodeclaim("late", cluster.add_instance("i-late", age=600))
    await run_collection(cluster.aws.terminate_orphaned_instances)
    assert list(cluster.instances.running) == ["i-late"]


async def test_instance_created_after_cached_list_keeps_its_nodeclaim(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    lists = SharedLists(cluster.build_ports())
    monkeypatch.setattr(FakeCluster, "lists", lists)
    assert await lists.instances.read_cached() == []
    cluster.add_nodeclaim("late", cluster.add_instance("i-late"), Registered="True")
    done = await run_collection(cluster.kubernetes.collect_nodeclaims)
    assert (done.checked, done.suspects, list(cluster.claims.found)) == (1, (), ["late"])
