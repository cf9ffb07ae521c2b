"""Interruption: both sources are read while a process hosts the watch, and failures are reported."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import Forbidden, NotFound
from tenure.model.interruption.messages import FailedCheck, StatusReport
from tenure.model.interruption.records import InterruptionState, QueueSetting, SourceState
from tests.support.fakes.interruptions import utc_now
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    count_scheduled,
    has_continued_as_new,
    wait_until,
    wait_until_skipping_time,
)
from workflows import ids
from workflows.activity_options import READ
from workflows.interruption import NO_HOST, InterruptionWorkflow

Interruption = WorkflowHandle[InterruptionWorkflow, None]


async def start_interruption(fake: WorkerHarness, queue: str = "demo", **state: object) -> Interruption:
    return await fake.client.start_workflow(
        InterruptionWorkflow.run,
        InterruptionState.model_validate({"cluster": fake.cluster, "queue": queue, **state}),
        id=ids.interruption(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def query_state(handle: Interruption) -> InterruptionState:
    return await handle.query(InterruptionWorkflow.state)


async def query_metadata(handle: Interruption) -> str:
    return str(await handle.query("__temporal_workflow_metadata"))


async def wait_until_true(holds: Callable[[], bool]) -> None:
    async def now() -> bool:
        return holds()

    await wait_until(now)


async def test_message_reaches_node_and_is_deleted(fake: WorkerHarness) -> None:
    queue, nodes = fake.interruptions.queue, fake.interruptions.nodes
    async with fake.running_planner():
        await start_interruption(fake)
        queue.send("i-a")
        await wait_until_true(lambda: queue.deleted == ["m1"])
    assert nodes.notifications_for("i-a") == ["spotInterruption announced"]
    assert set(queue.polled_queues) == {"demo"}


async def test_instance_status_is_read_too(fake: WorkerHarness) -> None:
    check = FailedCheck(kind="systemStatus", since=utc_now() - timedelta(minutes=5))
    fake.interruptions.statuses.reports = [StatusReport(instance_id="i-a", failed_checks=(check,))]
    async with fake.running_planner():
        handle = await start_interruption(fake)

        async def open_now() -> bool:
            return [one.instance_id for one in (await query_state(handle)).open_interruptions] == ["i-a"]

        await wait_until(open_now)
    assert "i-a: systemStatus impaired" in await query_metadata(handle)


async def test_unreadable_queue_is_reported_and_retried(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other source is still read."""
    monkeypatch.setattr("workflows.interruption.READ_RECOVERED_AFTER", timedelta(seconds=1))
    queue, statuses = fake.interruptions.queue, fake.interruptions.statuses
    missing = NotFound("no queue demo", code="QueueDoesNotExist")
    queue.faults = {"receive": [missing] * 3}
    async with fake.running_planner():
        handle = await start_interruption(fake)

        async def failing() -> bool:
            return (await query_state(handle)).messages.failed_attempts >= 2

        await wait_until_skipping_time(fake, failing)
        found = (await query_state(handle)).messages
        assert (found.fault, found.failing_since is not None) == ("QueueDoesNotExist: no queue demo", True)
        assert "**unreadable**" in await query_metadata(handle)
        assert statuses.reads and (await query_state(handle)).statuses == SourceState()
        queue.send("i-a")
        await wait_until_true(lambda: queue.is_empty)
        assert (await query_state(handle)).messages.failing_since == found.failing_since

        async def well() -> bool:
            return (await query_state(handle)).messages.failing_since is None

        await wait_until_skipping_time(fake, well)
    last = (await query_state(handle)).messages
    assert (last.fault, last.failed_attempts) == ("QueueDoesNotExist: no queue demo", 0)
    assert await count_scheduled(handle, "consume_queue") == 4


async def test_retry_delay_grows_to_one_minute(fake: WorkerHarness) -> None:
    fake.interruptions.statuses.faults = {"read": [Forbidden("not allowed")] * 20}
    async with fake.running_planner():
        began = await fake.now()
        handle = await start_interruption(fake, queue="")

        async def tried() -> bool:
            return (await query_state(handle)).statuses.failed_attempts >= 9

        await wait_until_skipping_time(fake, tried, seconds=20)
    took = (await fake.now()) - began
    assert timedelta(seconds=63 + 60) < took < timedelta(seconds=63 + 240)


async def test_without_queue_only_status_is_read(fake: WorkerHarness) -> None:
    async with fake.running_planner():
        handle = await start_interruption(fake, queue="")
        await wait_until_true(lambda: fake.interruptions.statuses.reads > 0)
    assert fake.interruptions.queue.polled_queues == []
    assert "INTERRUPTION_QUEUE is not set" in await query_metadata(handle)


async def test_changed_queue_setting_is_followed(fake: WorkerHarness) -> None:
    queue = fake.interruptions.queue
    async with fake.running_planner():
        handle = await start_interruption(fake, queue="one")
        await wait_until_true(lambda: "one" in queue.polled_queues)
        await handle.signal(InterruptionWorkflow.set_queue, QueueSetting(queue="two"))
        await wait_until_true(lambda: queue.polled_queues[-1] == "two" and queue.polling == 1)
        await handle.signal(InterruptionWorkflow.set_queue, QueueSetting(queue=""))
        await wait_until_true(lambda: queue.polling == 0)


async def test_repeated_queue_setting_keeps_consumer(fake: WorkerHarness) -> None:
    async with fake.running_planner():
        handle = await start_interruption(fake)
        await wait_until_true(lambda: bool(fake.interruptions.queue.polled_queues))
        for _ in range(3):
            await handle.signal(InterruptionWorkflow.set_queue, QueueSetting(queue="demo"))
        await query_state(handle)
    assert await count_scheduled(handle, "consume_queue") == 1


async def test_missing_watch_host_is_reported_and_awaited(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READ, "schedule_to_start_timeout", timedelta(seconds=1))
    handle = await start_interruption(fake)

    async def missing_host_is_reported() -> bool:
        return (await query_state(handle)).messages.fault == NO_HOST

    await wait_until_skipping_time(fake, missing_host_is_reported)
    assert NO_HOST in await query_metadata(handle)
    fake.interruptions.queue.send("i-a")
    async with fake.running_planner():

        async def handled() -> bool:
            return fake.interruptions.queue.is_empty

        await wait_until_skipping_time(fake, handled)


async def test_stopped_process_hands_consumers_over(skipping: WorkflowEnvironment) -> None:
    one = WorkerHarness.on(skipping)
    two = WorkerHarness.on(skipping, cluster=one.cluster)
    async with one.running_worker():
        async with one.running_planner():
            handle = await start_interruption(one)
            await wait_until_true(
                lambda: bool(one.interruptions.queue.polled_queues) and one.interruptions.statuses.reads > 0
            )
        async with two.running_planner():
            two.interruptions.queue.send("i-a")

            async def handled() -> bool:
                return two.interruptions.queue.is_empty

            await wait_until_skipping_time(skipping, handled)
        assert await count_scheduled(handle, "consume_queue") == 1


async def test_unresponsive_process_is_replaced(skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was killed or hangs: its heartbeats stop, and another process continues."""
    monkeypatch.setitem(READ, "heartbeat_timeout", timedelta(seconds=1))
    monkeypatch.setattr("activities.runtime.HEARTBEAT_EVERY_SECONDS", 1000.0)
    one = WorkerHarness.on(skipping)
    address = skipping.client.service_client.config.target_host
    two = WorkerHarness(await Client.connect(address, data_converter=pydantic_data_converter), cluster=one.cluster)
    async with one.running_worker(), one.running_planner():
        handle = await start_interruption(one)
        await wait_until_true(lambda: bool(one.interruptions.queue.polled_queues))
        two.interruptions.queue.send("i-a")
        async with two.running_planner():

            async def handled() -> bool:
                return two.interruptions.queue.is_empty

            await wait_until_skipping_time(skipping, handled)
        assert (await query_state(handle)).messages.failing_since is None
        assert await count_scheduled(handle, "consume_queue") == 1


async def test_repeated_faults_continue_as_new(fake: WorkerHarness) -> None:
    """Both sources fail, because the server skips no time while an activity runs."""
    fake.interruptions.queue.faults = {"receive": [Forbidden("not allowed")] * 200}
    fake.interruptions.statuses.faults = {"read": [Forbidden("not allowed")] * 200}
    async with fake.running_planner():
        handle = await start_interruption(fake)

        async def is_continued() -> bool:
            return await has_continued_as_new(fake.client, handle)

        await wait_until_skipping_time(fake, is_continued, minutes=5)
        found = await query_state(fake.client.get_workflow_handle_for(InterruptionWorkflow.run, handle.id))
    assert found.messages.failed_attempts > 15 and found.messages.failing_since is not None


async def test_uncached_workflow_replays_and_continues(skipping: WorkflowEnvironment) -> None:
    """Without a cache, each workflow task starts with a replay."""
    uncached = WorkerHarness.on(skipping, max_cached_workflows=0)
    async with uncached.running_worker(), uncached.running_planner():
        handle = await start_interruption(uncached)
        await handle.signal(InterruptionWorkflow.set_queue, QueueSetting(queue="other"))
        uncached.interruptions.queue.send("i-a")
        await wait_until_true(lambda: uncached.interruptions.queue.is_empty)
        assert (await query_state(handle)).queue == "other"
