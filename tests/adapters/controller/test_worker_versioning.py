"""Worker versioning on the real dev server: which of several builds gets the tasks."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tenure.controller.temporal import worker_versioning
from tenure.model.errors import BadInput
from tests.support.cli.temporal_server import temporal_server
from tests.support.product.eventually import wait_until
from workflows import ids


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from temporal_server(tmp_path_factory.mktemp("builds"))


@pytest.fixture
def cluster() -> str:
    return f"builds-{uuid.uuid4().hex[:8]}"


@workflow.defn(name="Counting")
class CountingWorkflow:
    """Runs until it receives `end`."""

    def __init__(self) -> None:
        self.count, self.finished = 0, False

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.finished)
        return self.count

    @workflow.signal
    def increment(self) -> None:
        self.count += 1

    @workflow.signal
    def end(self) -> None:
        self.finished = True


@asynccontextmanager
async def running_worker(temporal: Client, cluster: str, build: str) -> AsyncIterator[None]:
    """A worker of this build."""
    worker = Worker(
        temporal,
        task_queue=ids.task_queue(cluster),
        workflows=[CountingWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        identity=build or "none",
        deployment_config=worker_versioning.deployment_config(cluster, build),
    )
    async with worker, worker_versioning.as_current_build(temporal, cluster, build, lambda why: None):
        yield


async def test_new_build_takes_over_open_workflows(address: str, cluster: str) -> None:
    temporal = await Client.connect(address)
    handle = await temporal.start_workflow(CountingWorkflow.run, id=cluster, task_queue=ids.task_queue(cluster))

    async def assert_latest_build(build: str) -> None:
        """Repeated with a new task each time: Temporal's partitions learn of the current build one after the other."""
        await handle.signal(CountingWorkflow.increment)
        await asyncio.sleep(0.2)
        assert (await task_worker_identities(temporal, cluster))[-1:] == [build]

    async with running_worker(temporal, cluster, ""):
        await wait_until(lambda: assert_latest_build("none"))
    async with running_worker(temporal, cluster, "v1"):
        await wait_until(lambda: assert_latest_build("v1"))
        async with running_worker(temporal, cluster, "v2"):
            assert await worker_versioning.current_build(temporal, cluster) == "v2"
            await wait_until(lambda: assert_latest_build("v2"))
            await handle.signal(CountingWorkflow.end)
            assert await handle.result() >= 3
    assert list(dict.fromkeys(await task_worker_identities(temporal, cluster))) == ["none", "v1", "v2"]


async def task_worker_identities(temporal: Client, workflow_id: str) -> list[str]:
    """The identities of the workers that ran its tasks, in order."""
    events = (await temporal.get_workflow_handle(workflow_id).fetch_history()).events
    found = [one.workflow_task_started_event_attributes for one in events]
    return [one.identity for one in found if one.scheduled_event_id]


async def test_another_build_takes_over_without_workers_of_the_current_one(
    address: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_versioning, "_EVERY", 1.0)
    temporal = await Client.connect(address)
    async with running_worker(temporal, cluster, "v1"):
        async with running_worker(temporal, cluster, "v2"):
            await asyncio.sleep(3)
            assert await worker_versioning.current_build(temporal, cluster) == "v2", (
                "the current build changed although its worker polls"
            )
        monkeypatch.setattr(worker_versioning, "is_alive", lambda poller, now: poller.identity == "v1")

        async def assert_previous_build_current() -> None:
            assert await worker_versioning.current_build(temporal, cluster) == "v1"

        await wait_until(assert_previous_build_current)


async def test_worker_without_build_id_does_not_join_versioned_workers(address: str, cluster: str) -> None:
    temporal = await Client.connect(address)
    await worker_versioning.require_build(temporal, cluster, "")
    async with running_worker(temporal, cluster, "v1"):
        await worker_versioning.require_build(temporal, cluster, "v2")
        with pytest.raises(BadInput, match=r"TEMPORAL_WORKER_BUILD_ID is not set.*'v1'.*--unversioned"):
            await worker_versioning.require_build(temporal, cluster, "")
