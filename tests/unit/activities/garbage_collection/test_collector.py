"""The activity of garbage collection: independent tasks, and no heartbeat during a short sweep."""

from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.garbage_collection import collector
from activities.garbage_collection.collector import GarbageCollector
from tenure.model.errors import Forbidden
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult, SweepRequest
from tests.support.fakes.ports import FakePorts
from tests.support.product.eventually import wait_until


async def sweep(garbage: GarbageCollector, *tasks: str) -> dict[str, GarbageCollectionResult]:
    requests = tuple(GarbageCollectionRequest(cluster="demo", task=one) for one in tasks)
    result = await ActivityEnvironment().run(garbage.collect_garbage, SweepRequest(tasks=requests))
    return {one.task: one for one in result.results}


async def test_fault_of_one_task_does_not_affect_others() -> None:
    ports = FakePorts()
    ports.inventory.faults["list_leases"] = [Forbidden("leases is forbidden")]
    found = await sweep(GarbageCollector(ports.build_ports()), "leases", "nodes")
    assert "leases is forbidden" in found["leases"].fault and found["nodes"].fault == ""


async def test_bug_in_one_task_does_not_affect_others() -> None:
    async def fail(_: GarbageCollectionRequest) -> GarbageCollectionResult:
        raise KeyError("bug")

    garbage = GarbageCollector(FakePorts().build_ports())
    garbage.tasks = {**garbage.tasks, "leases": fail}
    found = await sweep(garbage, "leases", "nodes")
    assert found["leases"].fault == "KeyError: 'bug'" and found["nodes"].fault == ""


async def test_task_of_another_version_is_reported() -> None:
    """During an upgrade, a worker may get the task of a newer one."""
    assert (
        "no such task" in (await sweep(GarbageCollector(FakePorts().build_ports()), "moon-phases"))["moon-phases"].fault
    )


async def test_slow_task_ends_and_short_sweep_sends_no_heartbeat(monkeypatch: Any) -> None:
    beats = list[tuple[Any, ...]]()
    environment, ports = ActivityEnvironment(), FakePorts()
    environment.on_heartbeat = lambda *details: beats.append(details)
    garbage = GarbageCollector(ports.build_ports())
    request = SweepRequest(tasks=tuple(GarbageCollectionRequest(cluster="demo", task=one) for one in garbage.tasks))
    await environment.run(garbage.collect_garbage, request)
    assert beats == []

    async def hang(_: GarbageCollectionRequest) -> GarbageCollectionResult:
        async def has_beaten() -> None:
            assert len(beats) > 1

        await wait_until(has_beaten, poll_interval=0.001)
        await wait_until(never, poll_interval=0.001)
        raise AssertionError

    async def never() -> None:
        raise AssertionError("the task hangs")

    monkeypatch.setattr(collector, "HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr(collector, "TASK_TIMEOUT_SECONDS", 0.1)
    garbage.tasks = {"leases": hang}
    request = SweepRequest(tasks=(GarbageCollectionRequest(cluster="demo", task="leases"),))
    (result,) = (await environment.run(garbage.collect_garbage, request)).results
    assert result.fault == "not finished within 0.1 s" and len(beats) > 1
