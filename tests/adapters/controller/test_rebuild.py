"""What Temporal lacks of a cluster is found and started, once, whoever else starts it too: on the real dev server."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.controller.lifecycle_policies import PolicyPort
from tenure.controller.rebuild import Astray, Rebuild, Snapshot, running
from tenure.controller.settings import HostSettings
from tenure.model.nodeclaim_state import ClaimState
from tenure.model.workflow_states import BatchWindow
from tests.support.cli.temporal_alone import temporal_alone
from tests.support.controller.builders import Json, claim, node, node_class, pod, pool
from tests.support.product.eventually import eventually
from workflows import ids
from workflows.garbage_collection import TASKS

WHOLE = {"watch", "provisioning", "cluster", "interruption"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_alone(tmp_path_factory.mktemp("rebuild"))


class Cluster:
    """One of a name of its own: its objects, and its Temporal, where no worker takes any work."""

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
        seen = await running(self.temporal, self.name)
        settings = HostSettings(cluster=self.name, task_queue=ids.task_queue(self.name))
        policies = cast(PolicyPort, None)
        snapshot = Snapshot(settings, self.objects, policies, now=datetime.now(UTC), number=time.time_ns())
        return Rebuild(self.temporal, snapshot, seen)

    async def found(self) -> list[Astray]:
        return await (await self.rebuild()).look()

    async def mended(self) -> list[Astray]:
        rebuild = await self.rebuild()
        found = await rebuild.look()
        await rebuild.mend(found, BatchWindow(), events="events")
        return found

    def life(self, name: str) -> str:
        return ids.nodeclaim(self.name, name, f"uid-{name}")

    async def shown(self, *lives: str) -> None:
        """Visibility comes a moment later."""

        async def all_shown() -> None:
            found = await running(self.temporal, self.name)
            assert {self.life(name) for name in lives} <= found, found

        await eventually(all_shown)

    async def history(self, workflow: str) -> list[Any]:
        handle = self.temporal.get_workflow_handle(workflow)
        return [event async for event in handle.fetch_history_events()]

    async def signals(self, workflow: str) -> int:
        events = await self.history(workflow)
        return sum(event.HasField("workflow_execution_signaled_event_attributes") for event in events)


@pytest.fixture
async def cluster(address: str) -> Cluster:
    return Cluster(await Client.connect(address, data_converter=pydantic_data_converter))


def names(found: list[Astray], kind: str, *, gone: bool = False) -> set[str]:
    return {one.name for one in found if one.kind == kind and one.gone == gone}


async def test_of_an_empty_temporal_everything_is_missing_and_looking_starts_nothing(cluster: Cluster) -> None:
    found = await cluster.found()
    assert names(found, "Cluster") == WHOLE
    assert names(found, "Schedule") == set(TASKS)
    assert names(found, "NodeClaim") == {"c1", "c2"}
    assert (names(found, "NodePool"), names(found, "EC2NodeClass")) == ({"general"}, {"default"})
    assert not names(found, "SearchAttribute")
    assert await cluster.found() == found


async def test_what_is_missing_is_started_and_a_second_call_does_nothing(cluster: Cluster) -> None:
    await cluster.mended()
    assert await cluster.found() == []
    before = await cluster.history(cluster.life("c1"))
    await cluster.shown("c1", "c2")
    assert await cluster.mended() == []
    assert await cluster.history(cluster.life("c1")) == before


async def test_a_life_begins_as_the_watch_begins_it(cluster: Cluster) -> None:
    await cluster.mended()
    started, signalled, *_ = await cluster.history(cluster.life("c1"))
    (payload,) = started.workflow_execution_started_event_attributes.input.payloads
    (state,) = await cluster.temporal.data_converter.decode([payload], [ClaimState])
    assert (state.identity.name, state.identity.pool, state.keeps_records) == ("c1", "general", True)
    assert signalled.workflow_execution_signaled_event_attributes.signal_name == "seen"


async def test_what_others_start_meanwhile_is_there_once(cluster: Cluster) -> None:
    """Each looked before the other started anything, as a watch does that begins at the same time."""
    one, other = await cluster.rebuild(), await cluster.rebuild()
    found, again = await one.look(), await other.look()
    assert found == again
    await asyncio.gather(one.mend(found, BatchWindow()), other.mend(again, BatchWindow()))
    await cluster.shown("c1", "c2")
    runs = [one.id async for one in cluster.temporal.list_workflows(f"WorkflowId = '{cluster.life('c1')}'")]
    assert runs == [cluster.life("c1")]
    assert await cluster.signals(cluster.life("c1")) == 2
    assert await cluster.found() == []


async def test_a_workflow_whose_claim_is_gone_is_told_so(cluster: Cluster) -> None:
    await cluster.mended()
    await cluster.shown("c1", "c2")
    cluster.objects["nodeclaims"] = [claim("c1", phase="Initialized")]
    found = await cluster.mended()
    assert [(one.kind, one.name, one.gone) for one in found] == [("NodeClaim", "c2", True)]
    assert await cluster.signals(cluster.life("c2")) == 2
    assert await cluster.signals(cluster.life("c1")) == await cluster.signals(ids.interruption(cluster.name)) == 1


async def test_a_claim_that_is_over_gets_no_life_and_one_that_is_going_does(cluster: Cluster) -> None:
    over = claim("over", deleting=True, finalizers=["example.com/mine"])
    cluster.objects["nodeclaims"] = [over, claim("going", deleting=True)]
    assert names(await cluster.found(), "NodeClaim") == {"going"}


async def test_only_what_is_missing_is_started(cluster: Cluster) -> None:
    await cluster.mended()
    await cluster.shown("c1", "c2")
    for lost in (cluster.life("c2"), ids.watch(cluster.name)):
        await cluster.temporal.get_workflow_handle(lost).terminate()
    await cluster.temporal.get_schedule_handle(ids.upkeep(cluster.name, "leases")).delete()
    found = await cluster.mended()
    assert {(one.kind, one.name) for one in found} == {
        ("NodeClaim", "c2"),
        ("Cluster", "watch"),
        ("Schedule", "leases"),
    }
    described = await cluster.temporal.get_workflow_handle(cluster.life("c2")).describe()
    assert described.status is WorkflowExecutionStatus.RUNNING
    assert await cluster.signals(cluster.life("c1")) == await cluster.signals(ids.interruption(cluster.name)) == 1
