"""Rebuild starts the missing workflows of a cluster once, also concurrently with a watch, on the real dev server."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.controller import rebuild
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.rebuild import Discrepancy, Rebuild, Snapshot, list_running_workflows
from tenure.controller.settings import ControllerSettings
from tenure.controller.temporal.client import Installation
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.nodeclaim.state import NodeClaimState
from tests.support.cli.temporal_server import temporal_server
from tests.support.controller.builders import Json, claim, node, node_class, pod, pool
from tests.support.product.eventually import wait_until
from workflows import ids

SINGLETONS = {"watch", "provisioning", "cluster", "interruption", "garbage-collection"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_server(tmp_path_factory.mktemp("rebuild"))


class RebuildCluster:
    """A cluster with its own name, its objects, and a Temporal server without workers."""

    def __init__(self, temporal: Client) -> None:
        self.temporal, self.name = temporal, f"rebuild-{uuid.uuid4().hex[:8]}"
        self.objects: dict[str, list[Json]] = {
            "ec2nodeclasses": [node_class()],
            "nodepools": [pool()],
            "nodes": [node("n1", of="c1")],
            "pods": [pod("web", on="n1")],
            "nodeclaims": [claim("c1", phase="Initialized"), claim("c2")],
        }

    async def rebuild(self) -> Rebuild:
        running_workflows = await list_running_workflows(self.temporal, self.name)
        settings = ControllerSettings(cluster=self.name)
        kube = cast(KubeAdapters, SimpleNamespace(client=None, lifecycle_policies=None))
        snapshot = Snapshot(settings, kube, now=datetime.now(UTC), number=time.time_ns())
        for plural, found in self.objects.items():
            for one in found:
                snapshot.add(plural, one)
        snapshot.complete()
        return Rebuild(self.temporal, snapshot, running_workflows)

    async def find_missing(self) -> list[Discrepancy]:
        return await (await self.rebuild()).find_discrepancies()

    async def repair(self) -> list[Discrepancy]:
        current = await self.rebuild()
        found = await current.find_discrepancies()
        await current.repair(found, Installation(self.name, queue="events"))
        return found

    def workflow_id(self, name: str) -> str:
        return ids.nodeclaim(self.name, name, f"uid-{name}")

    async def wait_until_visible(self, *nodeclaim_names: str) -> None:
        """Wait until visibility lists the workflows of these NodeClaims."""

        async def assert_visible() -> None:
            found = await list_running_workflows(self.temporal, self.name)
            assert {self.workflow_id(name) for name in nodeclaim_names} <= found, found

        await wait_until(assert_visible)

    async def history_events(self, workflow: str) -> list[Any]:
        handle = self.temporal.get_workflow_handle(workflow)
        return [event async for event in handle.fetch_history_events()]

    async def count_signals(self, workflow: str) -> int:
        events = await self.history_events(workflow)
        return sum(event.HasField("workflow_execution_signaled_event_attributes") for event in events)


@pytest.fixture
async def cluster(address: str) -> RebuildCluster:
    return RebuildCluster(await Client.connect(address, data_converter=pydantic_data_converter))


def names(found: list[Discrepancy], kind: str, *, object_deleted: bool = False) -> set[str]:
    return {one.name for one in found if one.kind == kind and one.is_orphaned == object_deleted}


async def test_everything_is_missing_in_an_empty_temporal(cluster: RebuildCluster) -> None:
    found = await cluster.find_missing()
    assert names(found, "Cluster") == SINGLETONS
    assert names(found, "NodeClaim") == {"c1", "c2"}
    assert (names(found, "NodePool"), names(found, "EC2NodeClass")) == ({"general"}, {"default"})
    assert not names(found, "SearchAttribute")
    assert await cluster.find_missing() == found


async def test_repair_starts_missing_workflows_once(cluster: RebuildCluster) -> None:
    await cluster.repair()
    assert await cluster.find_missing() == []
    before = await cluster.history_events(cluster.workflow_id("c1"))
    await cluster.wait_until_visible("c1", "c2")
    assert await cluster.repair() == []
    assert await cluster.history_events(cluster.workflow_id("c1")) == before


async def test_pods_that_need_a_plan_are_searched_once(
    cluster: RebuildCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each NodeClaim, it would take hours with 100,000 of them."""
    calls: list[datetime] = []

    def needs_plan(cache: ClusterCache, now: datetime) -> bool:
        calls.append(now)
        return False

    monkeypatch.setattr(rebuild, "needs_plan", needs_plan)
    assert len(names(await cluster.repair(), "NodeClaim")) == 2 and len(calls) == 1


async def test_workflow_of_an_invalid_object_is_not_orphaned(cluster: RebuildCluster) -> None:
    await cluster.repair()
    await cluster.wait_until_visible("c1", "c2")
    cluster.objects["nodeclaims"][1]["spec"]["resources"] = {"requests": {"cpu": "1" * 100}}
    cluster.objects["nodepools"][0]["spec"]["limits"] = {"cpu": "1" * 100}
    assert await cluster.find_missing() == []


async def test_repaired_workflow_starts_as_the_watch_starts_it(cluster: RebuildCluster) -> None:
    await cluster.repair()
    started, signalled, *_ = await cluster.history_events(cluster.workflow_id("c1"))
    (payload,) = started.workflow_execution_started_event_attributes.input.payloads
    (state,) = await cluster.temporal.data_converter.decode([payload], [NodeClaimState])
    assert (state.identity.name, state.identity.pool) == ("c1", "general")
    assert signalled.workflow_execution_signaled_event_attributes.signal_name == "observe"


async def test_concurrent_repairs_start_each_workflow_once(cluster: RebuildCluster) -> None:
    """Both find the discrepancies before either repairs, as with a watch that starts at the same time."""
    one, other = await cluster.rebuild(), await cluster.rebuild()
    found, other_found = await one.find_discrepancies(), await other.find_discrepancies()
    assert found == other_found
    await asyncio.gather(
        one.repair(found, Installation(cluster.name)), other.repair(other_found, Installation(cluster.name))
    )
    await cluster.wait_until_visible("c1", "c2")
    runs = [one.id async for one in cluster.temporal.list_workflows(f"WorkflowId = '{cluster.workflow_id('c1')}'")]
    assert runs == [cluster.workflow_id("c1")]
    assert await cluster.count_signals(cluster.workflow_id("c1")) == 2
    assert await cluster.find_missing() == []


async def test_workflow_of_a_deleted_nodeclaim_is_signaled(cluster: RebuildCluster) -> None:
    await cluster.repair()
    await cluster.wait_until_visible("c1", "c2")
    cluster.objects["nodeclaims"] = [claim("c1", phase="Initialized")]
    found = await cluster.repair()
    assert [(one.kind, one.name, one.is_orphaned) for one in found] == [("NodeClaim", "c2", True)]
    assert await cluster.count_signals(cluster.workflow_id("c2")) == 2
    assert (
        await cluster.count_signals(cluster.workflow_id("c1"))
        == await cluster.count_signals(ids.interruption(cluster.name))
        == 1
    )


async def test_only_deleting_nodeclaims_with_our_finalizer_get_a_workflow(cluster: RebuildCluster) -> None:
    deleted = claim("over", deleting=True, finalizers=["example.com/mine"])
    cluster.objects["nodeclaims"] = [deleted, claim("going", deleting=True)]
    assert names(await cluster.find_missing(), "NodeClaim") == {"going"}


async def test_repair_starts_only_missing_workflows(cluster: RebuildCluster) -> None:
    await cluster.repair()
    await cluster.wait_until_visible("c1", "c2")
    for missing in (cluster.workflow_id("c2"), ids.watch(cluster.name)):
        await cluster.temporal.get_workflow_handle(missing).terminate()
    found = await cluster.repair()
    assert {(one.kind, one.name) for one in found} == {
        ("NodeClaim", "c2"),
        ("Cluster", "watch"),
    }
    described = await cluster.temporal.get_workflow_handle(cluster.workflow_id("c2")).describe()
    assert described.status is WorkflowExecutionStatus.RUNNING
    assert (
        await cluster.count_signals(cluster.workflow_id("c1"))
        == await cluster.count_signals(ids.interruption(cluster.name))
        == 1
    )
