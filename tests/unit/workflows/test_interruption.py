"""Interruption: both sources are read for as long as a process hosts the watch, and it is said when they are not."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import CancelledError
from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import Forbidden, NotFound
from tenure.model.interruption.notices import FailedCheck, StatusReport
from tenure.model.interruption.records import InterruptionState, QueueNamed, SourceState
from tests.support.fakes.interruptions import utc_now
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_time, rolled, scheduled
from workflows import ids
from workflows.activity_options import READ
from workflows.interruption import NOBODY, InterruptionWorkflow

Interruption = WorkflowHandle[InterruptionWorkflow, None]


async def started(fake: World, queue: str = "demo", **state: object) -> Interruption:
    return await fake.client.start_workflow(
        InterruptionWorkflow.run,
        InterruptionState.model_validate({"cluster": fake.cluster, "queue": queue, **state}),
        id=ids.interruption(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def state(handle: Interruption) -> InterruptionState:
    return await handle.query(InterruptionWorkflow.state)


async def details(handle: Interruption) -> str:
    return str(await handle.query("__temporal_workflow_metadata"))


async def until(holds: Callable[[], bool]) -> None:
    async def now() -> bool:
        return holds()

    await eventually(now)


async def test_a_message_reaches_its_node_and_leaves(fake: World) -> None:
    queue, nodes = fake.interruptions.queue, fake.interruptions.nodes
    async with fake.planning():
        await started(fake)
        queue.send("i-a")
        await until(lambda: queue.deleted == ["m1"])
    assert nodes.heard("i-a") == ["spotInterruption announced"]
    assert set(queue.read) == {"demo"}


async def test_the_status_is_read_beside_it(fake: World) -> None:
    check = FailedCheck(kind="systemStatus", since=utc_now() - timedelta(minutes=5))
    fake.interruptions.statuses.reports = [StatusReport(instance_id="i-a", failed=(check,))]
    async with fake.planning():
        handle = await started(fake)

        async def open_now() -> bool:
            return [one.instance_id for one in (await state(handle)).told] == ["i-a"]

        await eventually(open_now)
    assert "i-a: systemStatus impaired" in await details(handle)


async def test_a_queue_that_cannot_be_read_is_said_and_tried_again(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And keeps nobody from the other source."""
    monkeypatch.setattr("workflows.activity_options.READ_WELL_AFTER", timedelta(seconds=1))
    queue, statuses = fake.interruptions.queue, fake.interruptions.statuses
    missing = NotFound("no queue demo", code="QueueDoesNotExist")
    queue.faults = {"receive": [missing] * 3}
    async with fake.planning():
        handle = await started(fake)

        async def failing() -> bool:
            return (await state(handle)).messages.tries >= 2

        await in_time(skipping, failing)
        found = (await state(handle)).messages
        assert (found.fault, found.failing_since is not None) == ("QueueDoesNotExist: no queue demo", True)
        assert "**cannot be read**" in await details(handle)
        assert statuses.reads and (await state(handle)).statuses == SourceState()
        queue.send("i-a")
        await until(lambda: queue.empty)
        assert (await state(handle)).messages.failing_since == found.failing_since

        async def well() -> bool:
            return (await state(handle)).messages.failing_since is None

        await in_time(skipping, well)
    last = (await state(handle)).messages
    assert (last.fault, last.tries) == ("QueueDoesNotExist: no queue demo", 0)
    assert await scheduled(handle, "read_queue") == 4


async def test_pauses_grow_to_a_minute(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.interruptions.statuses.faults = {"read": [Forbidden("not allowed")] * 20}
    async with fake.planning():
        began = await skipping.get_current_time()
        handle = await started(fake, queue="")

        async def tried() -> bool:
            return (await state(handle)).statuses.tries >= 9

        await in_time(skipping, tried, seconds=20)
    took = (await skipping.get_current_time()) - began
    assert timedelta(seconds=63 + 60) < took < timedelta(seconds=63 + 240)


async def test_without_a_queue_only_the_status_is_read(fake: World) -> None:
    async with fake.planning():
        handle = await started(fake, queue="")
        await until(lambda: fake.interruptions.statuses.reads > 0)
    assert fake.interruptions.queue.read == []
    assert "INTERRUPTION_QUEUE is not set" in await details(handle)


async def test_a_worker_that_names_another_queue_is_followed(fake: World) -> None:
    queue = fake.interruptions.queue
    async with fake.planning():
        handle = await started(fake, queue="one")
        await until(lambda: "one" in queue.read)
        await handle.signal(InterruptionWorkflow.queue_named, QueueNamed(queue="two"))
        await until(lambda: queue.read[-1] == "two" and queue.polling == 1)
        await handle.signal(InterruptionWorkflow.queue_named, QueueNamed(queue=""))
        await until(lambda: queue.polling == 0)


async def test_the_same_name_again_disturbs_nothing(fake: World) -> None:
    async with fake.planning():
        handle = await started(fake)
        await until(lambda: bool(fake.interruptions.queue.read))
        for _ in range(3):
            await handle.signal(InterruptionWorkflow.queue_named, QueueNamed(queue="demo"))
        await state(handle)
    assert await scheduled(handle, "read_queue") == 1


async def test_while_nobody_hosts_the_watch_it_is_said_and_waited_for(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(READ, "schedule_to_start_timeout", timedelta(seconds=1))
    handle = await started(fake)

    async def nobody() -> bool:
        return (await state(handle)).messages.fault == NOBODY

    await in_time(skipping, nobody)
    assert NOBODY in await details(handle)
    fake.interruptions.queue.send("i-a")
    async with fake.planning():

        async def handled() -> bool:
            return fake.interruptions.queue.empty

        await in_time(skipping, handled)


async def test_a_process_that_stops_hands_on_to_the_next(skipping: WorkflowEnvironment) -> None:
    one = World(skipping.client)
    two = World(skipping.client, cluster=one.cluster)
    async with one.working():
        async with one.planning():
            handle = await started(one)
            await until(lambda: bool(one.interruptions.queue.read) and one.interruptions.statuses.reads > 0)
        async with two.planning():
            two.interruptions.queue.send("i-a")

            async def handled() -> bool:
                return two.interruptions.queue.empty

            await in_time(skipping, handled)
        assert await scheduled(handle, "read_queue") == 1


async def test_a_process_that_falls_silent_is_replaced(
    skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed or hung: its heartbeat stops, and another one reads on."""
    monkeypatch.setitem(READ, "heartbeat_timeout", timedelta(seconds=1))
    monkeypatch.setattr("activities.runtime.EVERY", 1000.0)
    one = World(skipping.client)
    address = skipping.client.service_client.config.target_host
    two = World(await Client.connect(address, data_converter=pydantic_data_converter), cluster=one.cluster)
    async with one.working(), one.planning():
        handle = await started(one)
        await until(lambda: bool(one.interruptions.queue.read))
        two.interruptions.queue.send("i-a")
        async with two.planning():

            async def handled() -> bool:
                return two.interruptions.queue.empty

            await in_time(skipping, handled)
        assert (await state(handle)).messages.failing_since is None
        assert await scheduled(handle, "read_queue") == 1


async def test_a_long_story_of_faults_continues_as_new(fake: World, skipping: WorkflowEnvironment) -> None:
    """Faults of both, since the server skips no time while an activity runs."""
    fake.interruptions.queue.faults = {"receive": [Forbidden("not allowed")] * 200}
    fake.interruptions.statuses.faults = {"read": [Forbidden("not allowed")] * 200}
    async with fake.planning():
        handle = await started(fake)

        async def over() -> bool:
            return await rolled(fake.client, handle)

        await in_time(skipping, over, minutes=5)
        found = await state(fake.client.get_workflow_handle_for(InterruptionWorkflow.run, handle.id))
    assert found.messages.tries > 15 and found.messages.failing_since is not None


async def test_it_ends_when_it_is_cancelled(fake: World) -> None:
    async with fake.planning():
        handle = await started(fake)
        await until(lambda: bool(fake.interruptions.queue.read) and fake.interruptions.statuses.reads > 0)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
        assert isinstance(ended.value.cause, CancelledError)
        await until(lambda: fake.interruptions.queue.polling == 0)


async def test_a_run_that_no_worker_remembers_goes_on(skipping: WorkflowEnvironment) -> None:
    """Every task of it begins with a replay."""
    forgetful = World(skipping.client, cached=0)
    async with forgetful.working(), forgetful.planning():
        handle = await started(forgetful)
        await handle.signal(InterruptionWorkflow.queue_named, QueueNamed(queue="other"))
        forgetful.interruptions.queue.send("i-a")
        await until(lambda: forgetful.interruptions.queue.empty)
        assert (await state(handle)).queue == "other"
