"""The Schedules of garbage collection on a real Temporal server: creation, update, pause, runs and removal."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial

import pytest
from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleOverlapPolicy,
)
from temporalio.service import RPCError

from tenure.controller.temporal.namespace import remove_schedules, schedule, start_schedules
from tenure.model.garbage_collection import GarbageCollectionResult, RunRef
from tests.support.fakes.worker import WorkerHarness
from tests.support.product.eventually import wait_until
from tests.support.workflows.eventually import count_scheduled
from workflows import ids
from workflows.garbage_collection import TASKS


@pytest.fixture
async def cluster(temporal: Client) -> AsyncIterator[str]:
    name = f"schedules-{uuid.uuid4().hex[:8]}"
    yield name
    await remove_schedules(temporal, name)


async def describe_schedule(temporal: Client, cluster: str, task: str) -> ScheduleDescription:
    return await temporal.get_schedule_handle(ids.garbage_collection(cluster, task)).describe()


async def test_each_task_has_one_schedule_after_concurrent_starts(temporal: Client, cluster: str) -> None:
    """Two workers may start at the same time."""
    await asyncio.gather(start_schedules(temporal, cluster), start_schedules(temporal, cluster))
    await start_schedules(temporal, cluster)
    for name, task in TASKS.items():
        found = await describe_schedule(temporal, cluster, name)
        assert isinstance(found.schedule.action, ScheduleActionStartWorkflow)
        assert found.schedule.action.task_queue == ids.task_queue(cluster)
        assert [one.every for one in found.schedule.spec.intervals] == [task.every]
        assert found.schedule.policy.overlap is ScheduleOverlapPolicy.SKIP
        assert (found.schedule.policy.catchup_window or timedelta.max) <= timedelta(minutes=1)
        assert found.schedule.state.note == task.description
        assert found.info.last_updated_at is None


async def test_outdated_schedule_is_updated_and_stays_paused(temporal: Client, cluster: str) -> None:
    older = schedule(cluster, "leases", TASKS["leases"]._replace(every=timedelta(hours=3)))
    handle = await temporal.create_schedule(ids.garbage_collection(cluster, "leases"), older)
    await handle.pause(note="looking into something")
    await start_schedules(temporal, cluster)
    found = await describe_schedule(temporal, cluster, "leases")
    assert [one.every for one in found.schedule.spec.intervals] == [TASKS["leases"].every]
    assert found.schedule.state.paused
    assert found.schedule.state.note == "looking into something"


async def test_schedule_with_former_id_is_replaced(temporal: Client, cluster: str) -> None:
    former_id = ids.former_garbage_collection(cluster, "leases")
    former = await temporal.create_schedule(former_id, schedule(cluster, "leases", TASKS["leases"]))
    await start_schedules(temporal, cluster)
    assert await describe_schedule(temporal, cluster, "leases")
    with pytest.raises(RPCError, match="not found"):
        await former.describe()


async def test_schedule_runs_its_task(temporal: Client, cluster: str) -> None:
    fake = WorkerHarness(temporal, cluster=cluster)
    fake.inventory.lease("left")
    async with fake.running_worker():
        await start_schedules_with_paused(temporal, cluster, "leases")
        await trigger_run(temporal, cluster, "leases")
        run = await wait_until(lambda: assert_last_run(temporal, cluster, "leases"))
        done = await temporal.get_workflow_handle(run, result_type=GarbageCollectionResult).result()
    assert done.collected == 1
    assert fake.inventory.known_leases == {}


async def test_run_receives_the_suspects_of_the_previous_run(temporal: Client, cluster: str) -> None:
    fake = WorkerHarness(temporal, cluster=cluster)
    fake.claims.add("bereft")
    fake.claims.set_status("bereft", provider_id="aws:///us-west-2a/i-gone", Registered="True")
    async with fake.running_worker():
        await start_schedules_with_paused(temporal, cluster, "nodeclaims")
        for expected in (0, 1):
            await trigger_run(temporal, cluster, "nodeclaims")
            run = await wait_until(partial(assert_last_run, temporal, cluster, "nodeclaims", expected + 1))
            done = await temporal.get_workflow_handle(run, result_type=GarbageCollectionResult).result()
            assert done.collected == expected
    assert fake.claims.found == {}


async def test_run_deletes_the_previous_uneventful_run(temporal: Client, cluster: str) -> None:
    fake = WorkerHarness(temporal, cluster=cluster)
    forgot = []
    async with fake.running_worker():
        await start_schedules_with_paused(temporal, cluster, "leases")
        for number in range(4):
            if number == 1:
                fake.inventory.lease("left")
            await trigger_run(temporal, cluster, "leases")
            run = await wait_until(partial(assert_last_run, temporal, cluster, "leases", number + 1))
            handle = temporal.get_workflow_handle(run, result_type=GarbageCollectionResult)
            assert (await handle.result()).collected == (number == 1)
            forgot.append(await count_scheduled(handle, "delete_uneventful_run"))
    assert forgot == [0, 1, 0, 1]


async def test_deleting_a_missing_run_succeeds(temporal: Client, cluster: str) -> None:
    never = RunRef(workflow_id=ids.garbage_collection(cluster, "never"), run_id=str(uuid.uuid4()))
    await WorkerHarness(temporal, cluster=cluster).workflows.delete_run(never)


async def start_schedules_with_paused(temporal: Client, cluster: str, task: str) -> None:
    """Start the Schedules, with this task paused so that only the test triggers its runs."""
    paused_schedule = schedule(cluster, task, TASKS[task])
    paused_schedule.state.paused = True
    await temporal.create_schedule(ids.garbage_collection(cluster, task), paused_schedule)
    await start_schedules(temporal, cluster)


async def trigger_run(temporal: Client, cluster: str, task: str) -> None:
    """Trigger a run, once the previous one no longer counts as running: until then Temporal starts none."""

    async def assert_idle() -> None:
        assert not (await describe_schedule(temporal, cluster, task)).info.running_actions

    await wait_until(assert_idle)
    await temporal.get_schedule_handle(ids.garbage_collection(cluster, task)).trigger()


async def assert_last_run(temporal: Client, cluster: str, task: str, runs: int = 1) -> str:
    """The workflow id of the last run, once the Schedule has started this number of runs."""
    recent = (await describe_schedule(temporal, cluster, task)).info.recent_actions
    assert len(recent) == runs, f"the Schedule started {len(recent)} runs"
    assert isinstance(recent[-1].action, ScheduleActionExecutionStartWorkflow)
    return recent[-1].action.workflow_id


async def test_schedules_are_removed_with_the_product(temporal: Client, cluster: str) -> None:
    await start_schedules(temporal, cluster)
    await remove_schedules(temporal, cluster)
    await remove_schedules(temporal, cluster)
    for name in TASKS:
        with pytest.raises(RPCError):
            await describe_schedule(temporal, cluster, name)
