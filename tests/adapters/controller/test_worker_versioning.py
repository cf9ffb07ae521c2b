"""Worker versioning on the real dev server: which of several builds gets the tasks."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tenure.controller.temporal import pollers, promotion, worker_versioning
from tenure.controller.temporal.promotion import Promotion, PromotionFailed, PromotionSettings
from tenure.metrics import WORKER_SERVES_CURRENT_BUILD
from tenure.model.errors import BadInput
from tests.support.cli.temporal_server import temporal_server
from tests.support.controller.meter import RecordingMeter
from tests.support.product.eventually import wait_until
from workflows import ids
from workflows.runner import CanaryWorkflow


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
async def running_worker(
    temporal: Client,
    cluster: str,
    build: str,
    workflows: Sequence[type] = (CountingWorkflow, CanaryWorkflow),
    *,
    meter: RecordingMeter | None = None,
) -> AsyncIterator[None]:
    """A worker of this build."""
    workers = [
        Worker(
            temporal,
            task_queue=queue(cluster),
            workflows=workflows,
            workflow_runner=UnsandboxedWorkflowRunner(),
            identity=build or "none",
            deployment_config=worker_versioning.deployment_config(cluster, build),
        )
        for queue in (ids.task_queue, ids.coordinator_queue)
    ]
    async with workers[0], workers[1]:
        maintenance = asyncio.create_task(lead(temporal, cluster, build, meter or RecordingMeter()))
        try:
            yield
        finally:
            maintenance.cancel()


async def lead(temporal: Client, cluster: str, build: str, meter: RecordingMeter) -> None:
    current = WORKER_SERVES_CURRENT_BUILD.bind(meter)
    await worker_versioning.wait_until_current(temporal, cluster, build, lambda why: None, serves_current_build=current)
    await worker_versioning.maintain_current(temporal, cluster, build, serves_current_build=current)


@pytest.fixture(autouse=True)
def frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_versioning, "_EVERY", 1.0)
    monkeypatch.setattr(worker_versioning, "_PROMOTION_SECONDS", 0.5)
    monkeypatch.setattr(promotion, "_POLL_SECONDS", 0.5)


async def wait_until_builds(temporal: Client, cluster: str, **expected: object) -> None:
    async def assert_builds() -> None:
        builds = await worker_versioning.read_builds(temporal, cluster)
        assert {name: getattr(builds, name) for name in expected} == expected

    await wait_until(assert_builds)


@asynccontextmanager
async def running_builds(
    temporal: Client, cluster: str, workflows: Sequence[type] = (CountingWorkflow, CanaryWorkflow)
) -> AsyncIterator[None]:
    """The current build 0.1.0, and 0.2.0 with these workflows, which waits for its promotion."""
    async with running_worker(temporal, cluster, "0.1.0"):
        await wait_until_builds(temporal, cluster, current="0.1.0")
        async with running_worker(temporal, cluster, "0.2.0", workflows):
            await wait_until_builds(temporal, cluster, current="0.1.0", workers={"0.1.0": 1, "0.2.0": 1})
            yield


async def promote(temporal: Client, cluster: str, build: str, **settings: Any) -> list[str]:
    """The reported steps."""
    steps: list[str] = []
    chosen = PromotionSettings(**{"timeout": timedelta(seconds=30), "ramp_duration": timedelta(seconds=3), **settings})
    await Promotion(temporal, cluster, build, chosen, steps.append).promote()
    return steps


async def test_open_workflows_continue_with_the_promoted_build(address: str, cluster: str) -> None:
    temporal = await Client.connect(address)
    handle = await temporal.start_workflow(CountingWorkflow.run, id=cluster, task_queue=ids.task_queue(cluster))

    async def assert_latest_build(build: str) -> None:
        """Repeated with a new task each time: Temporal's partitions learn of the current build one after the other."""
        await handle.signal(CountingWorkflow.increment)
        await asyncio.sleep(0.2)
        assert (await task_worker_identities(temporal, cluster))[-1:] == [build]

    async with running_worker(temporal, cluster, ""):
        await wait_until(lambda: assert_latest_build("none"))
    async with running_worker(temporal, cluster, "0.1.0"):
        await wait_until(lambda: assert_latest_build("0.1.0"))
        async with running_worker(temporal, cluster, "0.2.0"):
            await wait_until_builds(temporal, cluster, workers={"0.1.0": 1, "0.2.0": 1})
            await asyncio.sleep(2)
            await assert_latest_build("0.1.0")
            _, ramp = await promote(temporal, cluster, "0.2.0")
            assert "0.2.0 gets 10 % of the workflows" in ramp
            await wait_until_builds(temporal, cluster, current="0.2.0", ramping="")
            await wait_until(lambda: assert_latest_build("0.2.0"))
            await handle.signal(CountingWorkflow.end)
            assert await handle.result() >= 3
    assert list(dict.fromkeys(await task_worker_identities(temporal, cluster))) == ["none", "0.1.0", "0.2.0"]


async def test_workers_report_whether_they_have_the_current_build(address: str, cluster: str) -> None:
    temporal = await Client.connect(address)
    old, new = RecordingMeter(), RecordingMeter()
    async with running_worker(temporal, cluster, "0.1.0", meter=old):
        await wait_until_builds(temporal, cluster, current="0.1.0")
        async with running_worker(temporal, cluster, "0.2.0", meter=new):
            await wait_until_builds(temporal, cluster, workers={"0.1.0": 1, "0.2.0": 1})
            await wait_until(lambda: assert_reported(new, 0))
            await assert_reported(old, 1)
            await promote(temporal, cluster, "0.2.0")
            await wait_until(lambda: assert_reported(new, 1))
            await wait_until(lambda: assert_reported(old, 0))


async def assert_reported(meter: RecordingMeter, value: float) -> None:
    assert meter.records[-1:] == [("tenure_worker_serves_current_build", (), value)]


async def task_worker_identities(temporal: Client, workflow_id: str) -> list[str]:
    """The identities of the workers that ran its tasks, in order."""
    events = (await temporal.get_workflow_handle(workflow_id).fetch_history()).events
    found = [one.workflow_task_started_event_attributes for one in events]
    return [one.identity for one in found if one.scheduled_event_id]


async def test_newer_build_takes_over_without_workers_of_the_current_one(
    address: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporal = await Client.connect(address)
    async with running_builds(temporal, cluster):
        monkeypatch.setattr(pollers, "is_alive", lambda poller, now: poller.identity == "0.2.0")
        await wait_until_builds(temporal, cluster, current="0.2.0")
        monkeypatch.setattr(pollers, "is_alive", lambda poller, now: poller.identity == "0.1.0")
        await asyncio.sleep(3)
        await wait_until_builds(temporal, cluster, current="0.2.0", workers={"0.1.0": 1})
        with pytest.raises(PromotionFailed, match=r"older than 0\.2\.0.*tenure build rollback"):
            await promote(temporal, cluster, "0.1.0", timeout=timedelta(0))
        await promote(temporal, cluster, "0.1.0", allows_older=True)
        await wait_until_builds(temporal, cluster, current="0.1.0")


@workflow.defn(name="Canary")
class FailingCanaryWorkflow:
    @workflow.run
    async def run(self) -> None:
        raise RuntimeError("broken build")


async def test_build_with_a_failed_canary_is_not_promoted(address: str, cluster: str) -> None:
    temporal = await Client.connect(address)
    async with running_builds(temporal, cluster, (CountingWorkflow, FailingCanaryWorkflow)):
        with pytest.raises(PromotionFailed, match=r"canary workflow failed on build 0\.2\.0: broken build"):
            await promote(temporal, cluster, "0.2.0", canary_timeout=timedelta(seconds=5))
        await wait_until_builds(temporal, cluster, current="0.1.0", ramping="")


async def test_killed_promotion_continues_its_ramp(address: str, cluster: str) -> None:
    temporal = await Client.connect(address)
    async with running_builds(temporal, cluster):
        killed = asyncio.create_task(promote(temporal, cluster, "0.2.0", ramp_duration=timedelta(seconds=6)))
        await wait_until_builds(temporal, cluster, ramping="0.2.0", ramp_percentage=10)
        killed.cancel()
        started = (await worker_versioning.read_builds(temporal, cluster)).ramp_started
        assert started
        steps = await promote(temporal, cluster, "0.2.0", ramp_duration=timedelta(seconds=6), ramp_percentage=50)
        assert f"10 % of the workflows until {started + timedelta(seconds=6):%H:%M:%S}" in steps[-1]
        await wait_until_builds(temporal, cluster, current="0.2.0")


async def test_ramp_ends_when_its_build_has_no_workers(
    address: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporal = await Client.connect(address)
    async with running_builds(temporal, cluster):
        killed = asyncio.create_task(promote(temporal, cluster, "0.2.0", ramp_duration=timedelta(minutes=5)))
        await wait_until_builds(temporal, cluster, ramping="0.2.0")
        killed.cancel()
        monkeypatch.setattr(pollers, "is_alive", lambda poller, now: poller.identity == "0.1.0")
        await wait_until_builds(temporal, cluster, current="0.1.0", ramping="")


async def test_worker_controller_promotes_the_builds_of_its_deployment(address: str, cluster: str) -> None:
    temporal, deployment = await Client.connect(address), f"{cluster}/tenure"
    worker = Worker(
        temporal,
        task_queue=ids.task_queue(cluster),
        workflows=[CountingWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        deployment_config=worker_versioning.deployment_config(cluster, "main-4f2c", deployment),
    )

    async def assert_has_worker() -> None:
        builds = await worker_versioning.read_builds(temporal, cluster, deployment)
        assert dict(builds.workers) == {"main-4f2c": 1} and builds.conflict_token and not builds.current

    async with worker:
        waiting = asyncio.create_task(
            worker_versioning.wait_until_current(
                temporal,
                cluster,
                "main-4f2c",
                lambda why: None,
                serves_current_build=WORKER_SERVES_CURRENT_BUILD.bind(RecordingMeter()),
                deployment=deployment,
            )
        )
        await wait_until(assert_has_worker)
        await asyncio.sleep(2)
        await assert_has_worker()
        assert not waiting.done()
        await temporal.workflow_service.set_worker_deployment_current_version(
            SetWorkerDeploymentCurrentVersionRequest(
                namespace=temporal.namespace, deployment_name=deployment, build_id="main-4f2c"
            )
        )
        await waiting


async def test_worker_without_build_id_does_not_join_versioned_workers(address: str, cluster: str) -> None:
    temporal = await Client.connect(address)
    await worker_versioning.require_build(temporal, cluster, "")
    async with running_worker(temporal, cluster, "v1"):
        await wait_until_builds(temporal, cluster, current="v1")
        await worker_versioning.require_build(temporal, cluster, "v2")
        with pytest.raises(BadInput, match=r"TEMPORAL_WORKER_BUILD_ID is not set.*'v1'.*--unversioned"):
            await worker_versioning.require_build(temporal, cluster, "")
