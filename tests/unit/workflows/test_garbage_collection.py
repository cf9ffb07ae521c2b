"""GarbageCollector: tasks run at their intervals, on request and after faults; an idle cluster costs few actions."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError

import workflows.activity_options
from activities.garbage_collection.collector import GarbageCollector
from tenure.model.errors import Forbidden
from tenure.model.garbage_collection import GarbageCollectionResult, TaskSelection, TaskState
from tests.support.fakes.ports import FakePorts
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import Collector, start_garbage_collector
from tests.support.workflows.eventually import count_completed_tasks, has_continued_as_new, wait_until
from workflows.garbage_collection import SHORTEST, TASKS, GarbageCollectorWorkflow, next_run_of

ACTIONS = (
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
)
MAX_ACTIONS_PER_DAY = 1500
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NO_OFFSET = timedelta(0)


async def start_collector(fake: WorkerHarness) -> Collector:
    """Returns when each task has run once."""
    handle = await start_garbage_collector(fake)

    async def has_run() -> bool:
        return set(await query_tasks(handle)) == set(TASKS)

    await wait_until(has_run)
    return handle


async def query_tasks(handle: Collector) -> dict[str, TaskState]:
    return (await handle.query(GarbageCollectorWorkflow.state)).tasks


async def sleep_until_runs(fake: WorkerHarness, handle: Collector, task: str, runs: int, *, minutes: int) -> None:
    """Activities may still run when the time is over."""
    await fake.sleep(minutes=minutes)

    async def has_run() -> bool:
        return (await query_tasks(handle))[task].runs >= runs

    await wait_until(has_run)


async def pause_task(handle: Collector, task: str) -> None:
    """Returns when the workflow waits again, since the server may skip time before it handles the signal."""
    await handle.signal(GarbageCollectorWorkflow.pause_task, TaskSelection(task=task))

    async def is_paused() -> bool:
        return (await query_tasks(handle))[task].paused

    await wait_until(is_paused)


async def run_task(handle: Collector, task: str) -> GarbageCollectionResult:
    result: GarbageCollectionResult = await handle.execute_update(
        "run_task", TaskSelection(task=task), result_type=GarbageCollectionResult
    )
    return result


def test_every_task_has_a_method_in_the_activity() -> None:
    assert set(GarbageCollector(FakePorts().build_ports()).tasks) == set(TASKS)


async def test_idle_cluster_costs_few_actions(fake: WorkerHarness) -> None:
    """Heartbeats are counted by the test of the activity."""
    handle = await start_collector(fake)
    before, first = await count_actions(handle), (await query_tasks(handle))["tags"].runs
    await sleep_until_runs(fake, handle, "tags", first + 4, minutes=8)
    tasks = await query_tasks(handle)
    sweeps, actions = tasks["tags"].runs - first, await count_actions(handle) - before
    # The timer of the next sweep may have started.
    assert 2 * sweeps <= actions <= 2 * sweeps + 1
    assert timedelta(days=1) / SHORTEST * 2 <= MAX_ACTIONS_PER_DAY
    results = [one.result for one in tasks.values()]
    assert {(one.collected, one.failed, one.fault) for one in results} == {(0, 0, "")}


async def count_actions(handle: Collector) -> int:
    events = Counter(one.event_type for one in (await handle.fetch_history()).events)
    return sum(events[one] for one in ACTIONS)


async def test_tasks_run_at_their_intervals(fake: WorkerHarness) -> None:
    handle = await start_collector(fake)
    await sleep_until_runs(fake, handle, "tags", 7, minutes=12)
    runs = {name: one.runs - 1 for name, one in (await query_tasks(handle)).items()}
    assert (runs["instances"], runs["nodeclaims"], runs["tags"], runs["leases"]) == (6, 6, 6, 2)
    assert runs["nodes"] in (1, 2) and runs["launch-templates"] in (0, 1) and runs["instance-profiles"] in (0, 1)


def test_intervals_share_wakeups() -> None:
    """After a fault, a task runs at the next wake-up of the others."""
    shortest = min(one.every for one in TASKS.values())
    assert all(one.every % shortest == timedelta(0) for one in TASKS.values())
    now = NOON + timedelta(seconds=61)
    slow, fault = TASKS["instance-profiles"], GarbageCollectionResult(fault="no")
    assert next_run_of(slow, GarbageCollectionResult(), now, offset=NO_OFFSET) == NOON + timedelta(minutes=30)
    assert next_run_of(slow, fault, now, offset=NO_OFFSET) == NOON + timedelta(minutes=2)
    offset = timedelta(seconds=100)
    assert next_run_of(slow, fault, now, offset=offset) == NOON + offset


def test_capacity_reservations_in_use_are_checked_each_minute() -> None:
    in_use = GarbageCollectionResult(checked=1)
    for name, every in (("capacity-types", 1), ("capacity-blocks", 1), ("instances", 2)):
        assert next_run_of(TASKS[name], in_use, NOON, offset=NO_OFFSET) == NOON + timedelta(minutes=every)


def test_early_timer_causes_no_second_run() -> None:
    early = NOON - timedelta(milliseconds=1)
    next_run = next_run_of(TASKS["tags"], GarbageCollectionResult(), early, offset=NO_OFFSET)
    assert next_run == NOON + timedelta(minutes=2)


async def test_failed_task_reports_its_fault_and_runs_again(fake: WorkerHarness) -> None:
    fake.inventory.faults["list_leases"] = [Forbidden("leases is forbidden")]
    handle = await start_collector(fake)
    failed = (await query_tasks(handle))["leases"]
    assert "leases is forbidden" in failed.result.fault
    fake.inventory.lease("left")
    await sleep_until_runs(fake, handle, "leases", 2, minutes=2)
    repeated = (await query_tasks(handle))["leases"]
    assert (repeated.runs, repeated.result.fault, repeated.result.collected) == (2, "", 1)


async def test_task_runs_on_request_and_keeps_its_interval(fake: WorkerHarness) -> None:
    handle = await start_collector(fake)
    planned = (await query_tasks(handle))["leases"].next_run
    fake.inventory.lease("left")
    assert (await run_task(handle, "leases")).collected == 1
    assert (await query_tasks(handle))["leases"].next_run == planned


async def test_paused_task_runs_only_on_request(fake: WorkerHarness) -> None:
    handle = await start_collector(fake)
    await pause_task(handle, "leases")
    fake.inventory.lease("left")
    await sleep_until_runs(fake, handle, "tags", 4, minutes=6)
    tasks = await query_tasks(handle)
    assert (tasks["leases"].runs, tasks["leases"].paused) == (1, True)
    assert (await run_task(handle, "leases")).collected == 1
    fake.inventory.lease("another")
    await handle.signal(GarbageCollectorWorkflow.resume_task, TaskSelection(task="leases"))
    await sleep_until_runs(fake, handle, "leases", 3, minutes=6)
    assert fake.inventory.known_leases == {}


async def test_task_that_was_paused_before_its_first_run_runs_when_it_is_resumed(fake: WorkerHarness) -> None:
    paused = {name: TaskState(paused=True) for name in TASKS}
    handle = await start_garbage_collector(fake, tasks=paused)
    await wait_until(lambda: is_waiting(handle))
    await handle.signal(GarbageCollectorWorkflow.resume_task, TaskSelection(task="leases"))
    await sleep_until_runs(fake, handle, "leases", 1, minutes=1)


async def is_waiting(handle: Collector) -> bool:
    return await count_completed_tasks(handle) > 0


async def test_unknown_task_is_rejected(fake: WorkerHarness) -> None:
    handle = await start_collector(fake)
    with pytest.raises(WorkflowUpdateFailedError) as rejected:
        await run_task(handle, "moon-phases")
    assert "unknown task 'moon-phases'" in str(rejected.value.cause)


async def test_run_receives_the_suspects_of_the_previous_run(fake: WorkerHarness) -> None:
    fake.claims.add("bereft")
    fake.claims.set_status("bereft", provider_id="aws:///us-west-2a/i-gone", Registered="True")
    handle = await start_collector(fake)
    assert (await query_tasks(handle))["nodeclaims"].result.suspects
    assert (await run_task(handle, "nodeclaims")).collected == 1
    assert fake.claims.found == {}


async def test_state_survives_continue_as_new(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 30)
    handle = await start_collector(fake)
    await pause_task(handle, "leases")
    await sleep_until_runs(fake, handle, "tags", 4, minutes=6)
    assert await has_continued_as_new(fake.client, handle)
    tasks = await query_tasks(fake.client.get_workflow_handle_for(GarbageCollectorWorkflow.run, handle.id))
    assert tasks["leases"].paused and tasks["tags"].runs >= 4


async def test_details_show_last_and_next_runs(fake: WorkerHarness) -> None:
    handle = await start_collector(fake)
    text = str(await handle.query("__temporal_workflow_metadata"))
    assert "Waiting for the next sweep at" in text and "| last run | next run |" in text and "| leases | 20" in text
