"""The workflow runner gives each event the same time in the first execution as in a replay, also with queries. It
delivers cancellation requests to long-lived workflows as signals."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker, WorkflowInstance

from tenure import metrics
from tenure.cli.nodes.workflows import LONG_LIVED
from tenure.controller.temporal.client import (
    Installation,
    require_cluster,
    restart_missing_singletons,
    start_singletons,
)
from tenure.model.errors import BadInput
from tenure.sandbox.temporal.dev_server import temporal_binary
from tests.support.controller.meter import RecordingMeter
from tests.support.fakes.worker import WorkerHarness
from tests.support.product.eventually import wait_until
from tests.support.workflows import eventually
from tests.support.workflows.nodeclaim_workflows import ready_nodeclaim, start_nodeclass, start_nodepool
from workflows import ids
from workflows.current_details import IgnoresCancellation
from workflows.runner import WORKFLOWS, EventsBeforeTheirTask, OrderedWorkflowInstance, OrderedWorkflowRunner

SIGNAL, QUERY, EVICTION, TIMER = "signal_workflow", "query_workflow", "remove_from_cache", "fire_timer"
STARTED, CANCEL, DONE, CANCELLED = "initialize_workflow", "cancel_workflow", "completed", "cancelled"
STOP_SECONDS = 60
ROUNDS = 4
"""Worker starts with a query and a signal; without the runner, about every second one fails."""


NOTES: dict[int, datetime] = {}
"""Time of each signal, by its number. The repetition of a workflow task that the server rejected sets it again."""


@workflow.defn
class NotesWorkflow:
    """Records the first time of each signal outside of its state, where a replay cannot change it."""

    def __init__(self) -> None:
        self._count, self._new = 0, list[int]()

    @workflow.run
    async def run(self) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self._new))
            number = self._new.pop()
            if not workflow.unsafe.is_replaying_history_events():
                NOTES[number] = workflow.now()

    @workflow.signal
    def note(self, number: int) -> None:
        self._count += 1
        self._new.append(number)

    @workflow.query
    def count(self) -> int:
        return self._count


Handle = WorkflowHandle[NotesWorkflow, None]


class Recorder:
    """Replaces a workflow instance and counts activations."""

    def __init__(self) -> None:
        self.activation_count = 0

    def activate(self, act: WorkflowActivation) -> None:
        self.activation_count += 1


def activation(time: int, *jobs: str, replaying: bool = False) -> WorkflowActivation:
    found = WorkflowActivation(is_replaying=replaying)
    found.timestamp.FromNanoseconds(time)
    for one in jobs:
        job = WorkflowActivationJob()
        ended = one in (DONE, CANCELLED)
        getattr(job.resolve_activity.result if ended else job, one).SetInParent()
        found.jobs.append(job)
    return found


@pytest.mark.parametrize(
    ("acts", "is_rejected"),
    [
        ([activation(1, SIGNAL, replaying=True), activation(1, SIGNAL)], True),
        ([activation(1, SIGNAL), activation(2, TIMER), activation(2, TIMER)], True),
        ([activation(1, SIGNAL), activation(1, DONE)], True),
        ([activation(1, STARTED, replaying=True), activation(1, SIGNAL)], True),
        ([activation(1, CANCEL), activation(1, CANCELLED)], False),
        ([activation(1, SIGNAL, replaying=True), activation(2, SIGNAL)], False),
        ([activation(1, SIGNAL), activation(2, SIGNAL), activation(2, QUERY), activation(3, SIGNAL)], False),
        ([activation(1, SIGNAL), activation(1, QUERY), activation(1, QUERY), activation(1, EVICTION)], False),
        ([activation(1, SIGNAL, replaying=True), activation(1, SIGNAL, replaying=True)], False),
    ],
)
def test_new_events_at_time_of_previous_task_are_rejected(
    acts: Sequence[WorkflowActivation], is_rejected: bool
) -> None:
    inner = Recorder()
    instance = OrderedWorkflowInstance(inner)  # type: ignore[arg-type]
    for act in acts[:-1]:
        instance.activate(act)
    if is_rejected:
        with pytest.raises(EventsBeforeTheirTask):
            instance.activate(acts[-1])
    else:
        instance.activate(acts[-1])
    assert inner.activation_count == len(acts) - is_rejected


async def test_signal_during_worker_start_with_query_keeps_its_time() -> None:
    """On a real server: the query waits for a worker, and the signal arrives meanwhile."""
    NOTES.clear()
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()), dev_server_startup_timeout=timedelta(seconds=60)
    ) as server:
        handle = await server.client.start_workflow(
            NotesWorkflow.run, id="notes", task_queue="notes", task_timeout=timedelta(seconds=1)
        )
        async with _worker(server):
            await handle.query(NotesWorkflow.count)
        for number in range(ROUNDS):
            query_task = asyncio.create_task(_query_count(handle))
            await asyncio.sleep(0.3)
            await handle.signal(NotesWorkflow.note, number)
            await asyncio.sleep(0.3)
            async with _worker(server):
                await query_task
                times = await wait_until(partial(_task_start_times, handle, number + 1))
        assert list(NOTES) == list(range(ROUNDS))
        assert [at.timestamp() for at in NOTES.values()] == pytest.approx(times, abs=0.01)


class FailingEviction:
    """Replaces a workflow instance that lost a task when the SDK's deadlock detector interrupted it."""

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner

    def activate(self, act: WorkflowActivation) -> Any:
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            raise RuntimeError("Eviction processed, but 5 tasks remain")
        return self._inner.activate(act)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_workflow_continues_and_worker_stops_although_it_cannot_be_evicted(
    skipping: WorkflowEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK repeats a failed eviction without limit."""
    runner = OrderedWorkflowRunner()
    create = runner._inner.create_instance
    with patch.object(runner._inner, "create_instance", lambda details: FailingEviction(create(details))):
        worker = Worker(
            skipping.client,
            task_queue="notes",
            workflows=[NotesWorkflow],
            workflow_runner=runner,
            max_cached_workflows=1,
        )
        async with asyncio.timeout(STOP_SECONDS), worker:
            first, second = [
                await skipping.client.start_workflow(NotesWorkflow.run, id=name, task_queue="notes")
                for name in ("first", "second")
            ]
            assert [await one.query(NotesWorkflow.count) for one in (first, second)] == [0, 0]
            await first.signal(NotesWorkflow.note, 1)
            assert await first.query(NotesWorkflow.count) == 1
    assert "workflow first evicted with unfinished tasks" in caplog.text


def _worker(server: WorkflowEnvironment) -> Worker:
    runner = OrderedWorkflowRunner()
    return Worker(server.client, task_queue="notes", workflows=[NotesWorkflow], workflow_runner=runner)


async def _query_count(handle: Handle) -> None:
    """Query, and accept a missing response, which is better than a wrong one."""
    with suppress(RPCError, TimeoutError, WorkflowQueryFailedError):
        await asyncio.wait_for(handle.query(NotesWorkflow.count), 3)


async def _task_start_times(handle: Handle, count: int) -> list[float]:
    """Start times, in seconds, of the workflow tasks that completed first after each of `count` signals."""
    found, waiting, began = list[float](), 0, 0.0
    for event in (await handle.fetch_history()).events:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                waiting += 1
            case EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
                began = event.event_time.ToNanoseconds() / 1e9
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                found, waiting = [*found, *([began] * waiting)], 0
    assert len(found) == count
    return found


# --- cancellation and termination ---

SINGLETONS = (ids.watch, ids.provisioning, ids.cluster, ids.interruption, ids.garbage_collection)
COORDINATORS: tuple[Callable[[WorkerHarness], Awaitable[Any]], ...] = (ready_nodeclaim, start_nodepool, start_nodeclass)


@pytest.mark.parametrize("start", COORDINATORS)
async def test_workflow_of_an_object_ignores_cancellation(
    fake: WorkerHarness, start: Callable[[WorkerHarness], Awaitable[Any]]
) -> None:
    workflow_id = (await start(fake)).id
    await assert_cancellation_ignored(fake, workflow_id)
    await fake.sleep(minutes=5)
    assert await is_open(fake, workflow_id)


@pytest.mark.parametrize("workflow_id", SINGLETONS)
async def test_singleton_ignores_cancellation(planning: WorkerHarness, workflow_id: Callable[[str], str]) -> None:
    async with planning.running_coordinators():
        await start_singletons(planning.client, Installation(planning.cluster))
        await assert_cancellation_ignored(planning, workflow_id(planning.cluster))


async def assert_cancellation_ignored(fake: WorkerHarness, workflow_id: str) -> None:
    """It runs, and its details name the request and the remedy."""
    handle = fake.client.get_workflow_handle(workflow_id)
    await handle.cancel()

    async def explains() -> bool:
        text = str(await handle.query("__temporal_workflow_metadata"))
        return "Cancellation requested at" in text and "To stop it, " in text

    await eventually.wait_until(explains)
    assert await is_open(fake, workflow_id)


async def is_open(fake: WorkerHarness, workflow_id: str) -> bool:
    opened = await eventually.list_open_runs(fake.client, workflow_id)
    return workflow_id in {one.execution.workflow_id for one in opened}


def test_only_short_workflows_follow_cancellation() -> None:
    following = {one.__name__ for one in WORKFLOWS if not issubclass(one, IgnoresCancellation)}
    assert following == {"CanaryWorkflow", "DisruptionWorkflow", "DisruptionPreviewWorkflow"}
    others = [one for one in WORKFLOWS if issubclass(one, IgnoresCancellation)]
    assert {workflow._Definition.must_from_class(one).name for one in others} == set(LONG_LIVED)


async def test_terminated_singleton_is_started_again(planning: WorkerHarness) -> None:
    installation, meter = Installation(planning.cluster), RecordingMeter()
    await start_singletons(planning.client, installation)
    terminated = ids.provisioning(planning.cluster)
    with patch("tenure.controller.temporal.client.is_open", lambda _, workflow_id: is_open(planning, workflow_id)):
        check = asyncio.create_task(
            restart_missing_singletons(
                planning.client,
                installation,
                every=timedelta(seconds=0.1),
                missing_workflows=metrics.WORKFLOWS_MISSING.bind(meter),
            )
        )
        await planning.client.get_workflow_handle(terminated).terminate("a person did it")
        await eventually.wait_until(lambda: is_open(planning, terminated))
        counted = [(labels, value) for _, labels, value in meter.records if value]
        assert counted and {labels for labels, _ in counted} == {("Provisioning",)}
        check.cancel()


async def test_name_of_another_cluster_is_refused(fake: WorkerHarness) -> None:
    ours = Installation(fake.cluster, cluster_uid="uid-a")
    await require_cluster(fake.client, ours)
    await start_singletons(fake.client, ours)
    await require_cluster(fake.client, ours)
    with pytest.raises(BadInput, match=f"CLUSTER_NAME={fake.cluster}: the Kubernetes cluster with UID uid-a uses"):
        await require_cluster(fake.client, replace(ours, cluster_uid="uid-b"))
    await fake.client.get_workflow_handle(ids.watch(fake.cluster)).terminate("the other cluster is gone")
    await require_cluster(fake.client, replace(ours, cluster_uid="uid-b"))
