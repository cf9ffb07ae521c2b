"""Failing status reports and background tasks block neither a node nor continue-as-new."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tenure.apis import labels
from tenure.model.errors import BadInput, Fault, TryLater
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.temporal_dev_server import served_by_temporal
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, is_in_phase, wait_until, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    create_nodeclaim,
    pause_for,
    ready_nodeclaim,
    registered_nodeclaim,
)
from tests.unit.workflows.continue_as_new import wait_until_continued_as_new
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.timers import STOP_TIMEOUT, stop_background_tasks

DRIFT = {"drift": "NodePoolDrifted", "drift_message": "labels changed"}


class TestContinueAsNew:
    @pytest.fixture
    async def skipping(self) -> AsyncIterator[WorkflowEnvironment]:
        """A real server. The time-skipping server may lose a signal to a run that is just continuing as new."""
        async with served_by_temporal() as environment:
            yield environment

    async def test_continue_as_new_does_not_wait_for_failing_event(
        self, fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = await ready_nodeclaim(fake)
        fake.events.faults["publish"] = [TryLater("503") for _ in range(1000)]
        await continue_as_new(fake, handle, monkeypatch, **DRIFT)
        assert "NodePoolDrifted" not in fake.events.reasons_for("a")
        fake.events.faults.clear()
        await wait_until(lambda: "NodePoolDrifted" in fake.events.reasons_for("a"))

    async def test_continue_as_new_does_not_wait_for_failing_annotation(
        self, fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = await ready_nodeclaim(fake)
        fake.claims.faults["patch_annotations"] = [TryLater("503") for _ in range(1000)]
        await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(fake, hours=1))
        await continue_as_new(fake, handle, monkeypatch)
        assert "DisruptionPaused" not in fake.events.reasons_for("a")
        fake.claims.faults.clear()
        await wait_until(lambda: "DisruptionPaused" in fake.events.reasons_for("a"))
        assert labels.PAUSE in fake.claims.found["a"]["metadata"]["annotations"]


async def continue_as_new(
    fake: WorkerHarness, handle: Handle, monkeypatch: pytest.MonkeyPatch, **observed: object
) -> None:
    monkeypatch.setattr("workflows.timers.STOP_TIMEOUT", timedelta(milliseconds=200))

    async def observe(number: int) -> None:
        await handle.signal("observe", fake.make_observation(**{**BUSY, **observed, "node_ready": bool(number % 2)}))

    await wait_until_continued_as_new(handle, monkeypatch, observe)


@pytest.mark.parametrize("fault", [BadInput("403 Forbidden"), TryLater("503")], ids=["rejected", "unavailable"])
async def test_node_is_deleted_although_last_event_cannot_be_published(fake: WorkerHarness, fault: Fault) -> None:
    fake.events.faults["publish"] = [fault for _ in range(1000)]
    handle = await fake.start(await create_nodeclaim(fake))
    outcome = await handle.result()
    assert outcome.reason == "RegistrationTimeout" and fake.instances.running == {}


async def test_rejected_event_does_not_block_later_events(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.events.faults["publish"] = [BadInput("403 Forbidden")]
    fake.nodes.found.clear()
    await fake.signal_observed(handle, node_name="", node_ready=False)
    await wait_until(lambda: not fake.events.faults["publish"])
    fake.instances.running.clear()
    await handle.result()
    assert fake.events.reasons_for("a").count("NodeNotFound") == 0
    assert "GarbageCollected" in fake.events.reasons_for("a")


async def test_failed_blocker_write_is_retried(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    fake.claims.faults["patch"] = [BadInput("403 Forbidden")]
    await fake.signal_observed(handle, **BUSY, waiting_for=["StartupTaintsExist: example.com/late"])
    expected = "Unknown StartupTaintsExist"
    await wait_until_skipping_time(fake, lambda: fake.claims.condition_text("a", "Initialized") == expected, seconds=5)
    assert fake.claims.faults["patch"] == [] and await is_in_phase(handle, Phase.INITIALIZATION)


@workflow.defn
class StoppingWorkflow:
    """Its background task ignores a cancellation, as a task does that signals another workflow meanwhile."""

    @workflow.run
    async def run(self) -> str:
        background_task = asyncio.create_task(self._ignore_cancellation())
        await workflow.sleep(1)
        await stop_background_tasks([background_task], lambda: False)
        return "ended" if background_task.done() else "left running"

    async def _ignore_cancellation(self) -> None:
        with suppress(asyncio.CancelledError):
            await workflow.wait_condition(lambda: False)
        await workflow.wait_condition(lambda: False)


async def test_run_ends_although_a_background_task_ignores_its_cancellation(skipping: WorkflowEnvironment) -> None:
    async with Worker(
        skipping.client,
        task_queue="stopping",
        workflows=[StoppingWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        outcome = await skipping.client.execute_workflow(
            StoppingWorkflow.run, id="stopping", task_queue="stopping", run_timeout=STOP_TIMEOUT + timedelta(minutes=1)
        )
    assert outcome == "left running"
