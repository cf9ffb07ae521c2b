"""Watch: one `watch_cluster` activity runs at any time, also after its process fails."""

from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import Forbidden, TryLater
from tests.support.fakes.planner_host import FakeHost
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import has_continued_as_new, wait_until, wait_until_skipping_time
from workflows import ids
from workflows.cluster_watch import ClusterWatchWorkflow

Watch = WorkflowHandle[ClusterWatchWorkflow, None]


async def start_watch(fake: WorkerHarness) -> Watch:
    return await fake.client.start_workflow(
        ClusterWatchWorkflow.run, fake.cluster, id=ids.watch(fake.cluster), task_queue=ids.task_queue(fake.cluster)
    )


async def test_failed_watch_is_restarted(fake: WorkerHarness) -> None:
    fake.host.faults["run"] = [TryLater("no API server"), Forbidden("another controller is active")]
    await start_watch(fake)
    await wait_until_skipping_time(fake, lambda: was_hosted(fake.host, 1), seconds=5)
    assert fake.host.faults["run"] == []


async def test_completed_watch_continues_as_new(fake: WorkerHarness) -> None:
    fake.host.ends = 1
    first = await start_watch(fake)
    await wait_until(lambda: was_hosted(fake.host, 2))
    assert await has_continued_as_new(fake.client, first)


async def test_stopped_process_hands_watch_over(skipping: WorkflowEnvironment) -> None:
    """The heartbeat carries the latest signals, so that the successor signals differences only."""
    one = WorkerHarness.on(skipping)
    two = WorkerHarness.on(skipping, cluster=one.cluster)
    async with one.running_worker():
        await start_watch(one)
        await wait_until(lambda: was_hosted(one.host, 1))
    async with two.running_worker():
        await wait_until_skipping_time(skipping, lambda: was_hosted(two.host, 1), seconds=1)


async def test_unresponsive_process_loses_watch(skipping: WorkflowEnvironment) -> None:
    """The process was killed or hangs, so its heartbeats stop."""
    one = WorkerHarness.on(skipping)
    one.host.silent = True
    address = skipping.client.service_client.config.target_host
    two = WorkerHarness(await Client.connect(address, data_converter=pydantic_data_converter), cluster=one.cluster)
    async with one.running_worker():
        await start_watch(one)
        await wait_until(lambda: was_hosted(one.host, 1))
        async with two.running_worker():
            await wait_until_skipping_time(
                skipping, lambda: len(one.host.carried) + len(two.host.carried) >= 2, seconds=1
            )


async def was_hosted(host: FakeHost, times: int) -> bool:
    return len(host.carried) == times
