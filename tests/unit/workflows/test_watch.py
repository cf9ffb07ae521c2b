"""Watch: one `watch_cluster` is alive somewhere, whatever becomes of the process that runs it."""

from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import Forbidden, TryLater
from tests.support.fakes.planning import FakeHost
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_time, rolled
from workflows import ids
from workflows.cluster_watch import WatchWorkflow

Watch = WorkflowHandle[WatchWorkflow, None]


async def watch(fake: World) -> Watch:
    return await fake.client.start_workflow(
        WatchWorkflow.run, fake.cluster, id=ids.watch(fake.cluster), task_queue=ids.task_queue(fake.cluster)
    )


async def test_a_watch_that_fails_is_started_again(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.host.faults["run"] = [TryLater("no API server"), Forbidden("another controller is at work")]
    await watch(fake)
    await in_time(skipping, lambda: hosted(fake.host, 1), seconds=5)
    assert fake.host.faults["run"] == []


async def test_a_watch_that_comes_back_is_started_again_as_a_new_run(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.host.ends = 1
    first = await watch(fake)
    await eventually(lambda: hosted(fake.host, 2))
    assert await rolled(fake.client, first)


async def test_a_process_that_stops_hands_the_watch_to_another(skipping: WorkflowEnvironment) -> None:
    """And says what was signalled last, so that the successor signals differences only."""
    one = World(skipping.client)
    two = World(skipping.client, cluster=one.cluster)
    async with one.working():
        await watch(one)
        await eventually(lambda: hosted(one.host, 1))
    async with two.working():
        await in_time(skipping, lambda: hosted(two.host, 1), seconds=1)


async def test_a_process_that_falls_silent_loses_the_watch(skipping: WorkflowEnvironment) -> None:
    """Killed or hung: its heartbeat stops, and with it nobody else is asked for anything."""
    one = World(skipping.client)
    one.host.silent = True
    address = skipping.client.service_client.config.target_host
    two = World(await Client.connect(address, data_converter=pydantic_data_converter), cluster=one.cluster)
    async with one.working():
        await watch(one)
        await eventually(lambda: hosted(one.host, 1))
        async with two.working():
            await in_time(skipping, lambda: at_least(one.host, two.host, 2), seconds=1)


async def hosted(host: FakeHost, times: int) -> bool:
    return len(host.carried) == times


async def at_least(one: FakeHost, two: FakeHost, times: int) -> bool:
    return len(one.carried) + len(two.carried) >= times
