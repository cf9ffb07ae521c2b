"""Promise 3 over days, on the time-skipping server with fake ports: a deferred drain happens once and on time.

Workers restart, runs continue as new, and daylight saving time starts or ends meanwhile.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    has_continued_as_new,
    is_in_phase,
    latest_run,
    query_state,
    wait_until_idle,
    wait_until_skipping_time,
)
from tests.support.workflows.interruption_messages import (
    interruption_rules,
    ready_with_rules,
    send_message,
    signal_interruption,
)
from tests.support.workflows.nodeclaim_workflows import BUSY

RESTARTS = 14
MAX_RUN_EVENTS = 100
"""Events of a run: more than before the deferral, so that the run continues as new between two restarts."""
NOTICE = timedelta(days=14)
LEAD = timedelta(hours=1)
BERLIN = ZoneInfo("Europe/Berlin")
DEFER = {"action": "deferUntilEventStart", "lead": "1h"}
WINDOW = {"schedule": "0 2 * * 0", "duration": "2h", "timeZone": "Europe/Berlin"}
WINDOWS = {"action": "window", "windows": [WINDOW], "lead": "1h"}


class RestartableWorker:
    """A worker that can be stopped and replaced by a new one with an empty cache."""

    def __init__(self, fake: WorkerHarness) -> None:
        self._fake, self._stack = fake, AsyncExitStack()

    async def start(self) -> None:
        await self._stack.enter_async_context(self._fake.running_worker())

    async def stop(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()


@asynccontextmanager
async def harness_with_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[WorkerHarness, WorkflowEnvironment, RestartableWorker]]:
    monkeypatch.setattr("activities.nodeclaim.drain.FIRST_POLL_SECONDS", 0.01)
    monkeypatch.setattr("activities.nodeclaim.drain_pass.MIN_DRAIN", 0.0)
    async with time_skipping() as skipping:
        fake = WorkerHarness.on(skipping, max_cached_workflows=0)
        workers = RestartableWorker(fake)
        await workers.start()
        try:
            yield fake, skipping, workers
        finally:
            await workers.stop()


async def restart_workers(
    workers: RestartableWorker, skipping: WorkflowEnvironment, downtime: timedelta, fake: WorkerHarness, handle: Handle
) -> None:
    """No worker runs during the downtime. Activities must complete before: this server's time stands still for them."""
    await wait_until_skipping_time(skipping, lambda: _is_idle(fake, handle))
    await workers.stop()
    while not await _is_idle(fake, handle):
        await workers.start()
        await wait_until_skipping_time(skipping, lambda: _is_idle(fake, handle))
        await workers.stop()
    await skipping.sleep(downtime)
    await workers.start()


async def _is_idle(fake: WorkerHarness, handle: Handle) -> bool:
    found = (await latest_run(fake.client, handle).describe()).raw_description
    return not found.pending_activities and not found.HasField("pending_workflow_task")


async def is_reported(handle: Handle, text: str) -> bool:
    """The deferral is published in details, event and annotation. Nothing is in progress, so time can pass without a
    worker.
    """
    state = await query_state(handle)
    return text in state.blocked_by and bool(state.published_event_versions) and bool(state.interruptions_annotation)


async def read_drain_start(fake: WorkerHarness, skipping: WorkflowEnvironment, handle: Handle) -> datetime:
    """When the drain started. It started exactly once."""
    await wait_until_skipping_time(skipping, lambda: is_completed(fake, handle), hours=2)
    outcome = await latest_run(fake.client, handle).result()
    at: datetime
    (at,) = (step.at for step in outcome.history if step.phase is Phase.DRAIN)
    assert outcome.reason in ("scheduled_change", "event_status")
    return at


async def is_completed(fake: WorkerHarness, handle: Handle) -> bool:
    found = await latest_run(fake.client, handle).describe()
    return found.status is WorkflowExecutionStatus.COMPLETED


async def advance_to_clock_change(skipping: WorkflowEnvironment, now: datetime, *, days: int = 7) -> datetime:
    """Advance to `days` before the next clock change in Berlin. Returns the end of the day before the change."""
    change = now + timedelta(days=days + 1)
    while (change + timedelta(days=1)).astimezone(BERLIN).utcoffset() == change.astimezone(BERLIN).utcoffset():
        change += timedelta(days=1)
    await skipping.sleep(change - timedelta(days=days) - now)
    return change


@pytest.mark.row("002-c")
@pytest.mark.timeout(900)
async def test_drain_deferred_for_two_weeks_starts_once_on_time_across_14_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", MAX_RUN_EVENTS)
    async with harness_with_workers(monkeypatch) as (fake, skipping, workers):
        change = await advance_to_clock_change(skipping, await skipping.get_current_time())
        handle = await ready_with_rules(fake, scheduledChange=DEFER)
        event_start = await skipping.get_current_time() + NOTICE
        assert event_start.astimezone(BERLIN).utcoffset() != change.astimezone(BERLIN).utcoffset(), (
            "no clock change before the event"
        )
        first = await send_message(fake, handle, starts=event_start, source="status")
        await wait_until_skipping_time(skipping, lambda: is_reported(handle, "deferred until"))
        for number in range(RESTARTS):
            await restart_workers(workers, skipping, timedelta(hours=1), fake, handle)
            await _repeat_message(fake, handle, first, number)
            await skipping.sleep(NOTICE / RESTARTS - timedelta(hours=1, minutes=6))
            assert await is_in_phase(latest_run(fake.client, handle), Phase.READY)
        assert await has_continued_as_new(fake.client, handle)
        assert abs(await read_drain_start(fake, skipping, handle) - (event_start - LEAD)) < timedelta(minutes=1)
        assert fake.events.reasons_for("a").count("InstanceUnhealthy") == 1
        assert fake.events.reasons_for("a").count("TerminatingOnInterruption") == 1
        assert len(fake.instances.terminated) == 1


async def _repeat_message(fake: WorkerHarness, handle: Handle, first: InterruptionMessage, number: int) -> None:
    """EC2's status repeats the event every minute; pods are created and deleted."""
    for _ in range(3):
        await signal_interruption(fake, handle, first)
        await wait_until_idle(handle)
    await fake.signal_observed(
        handle, **BUSY, **interruption_rules(scheduledChange=DEFER), consolidation=f"WhenEmpty/{number + 1}h"
    )


@pytest.mark.row("002-c")
@pytest.mark.timeout(600)
async def test_event_cancelled_without_a_worker_does_not_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    async with harness_with_workers(monkeypatch) as (fake, skipping, workers):
        handle = await ready_with_rules(fake, scheduledChange=DEFER)
        await send_message(fake, handle, starts=await skipping.get_current_time() + timedelta(hours=48))
        await wait_until_skipping_time(skipping, lambda: is_reported(handle, "deferred until"))
        await wait_until_skipping_time(skipping, lambda: _is_idle(fake, handle))
        await workers.stop()
        await skipping.sleep(timedelta(hours=40))
        await send_message(fake, handle, status="withdrawn")
        await workers.start()
        await skipping.sleep(timedelta(hours=20))
        state = await query_state(handle)
        assert (state.phase, state.blocked_by) == (Phase.READY, "")
        assert "InterruptionWithdrawn" in fake.events.reasons_for("a")


@pytest.mark.row("002-h")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "days_before", [6, 8], ids=["in the week of the clock change", "a week before the clock change"]
)
async def test_drain_starts_in_its_window_across_a_clock_change(
    monkeypatch: pytest.MonkeyPatch, days_before: int
) -> None:
    async with harness_with_workers(monkeypatch) as (fake, skipping, workers):
        change = await advance_to_clock_change(skipping, await skipping.get_current_time(), days=days_before + 1)
        sunday = _sunday(change)
        await skipping.sleep(sunday - timedelta(days=days_before) - await skipping.get_current_time())
        handle = await ready_with_rules(fake, scheduledChange=WINDOWS)
        now = await skipping.get_current_time()
        await send_message(fake, handle, starts=now + timedelta(days=6, hours=12))
        await wait_until_skipping_time(skipping, lambda: is_reported(handle, "waits for its window, which opens at"))
        for _ in range(3):
            await restart_workers(workers, skipping, timedelta(minutes=20), fake, handle)
            assert await is_in_phase(handle, Phase.READY)
        drain_start = (await read_drain_start(fake, skipping, handle)).astimezone(BERLIN)
        assert drain_start.weekday() == 6
        assert drain_start.hour in (2, 3)
        assert drain_start < now + timedelta(days=6, hours=11)


def _sunday(change: datetime) -> datetime:
    """02:00 of the Sunday of the clock change."""
    day = change.astimezone(BERLIN).date()
    while day.weekday() != 6:
        day += timedelta(days=1)
    return datetime(day.year, day.month, day.day, 2, tzinfo=BERLIN).astimezone(UTC)


@pytest.mark.row("002-h")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fallback", ["drain", "notify"])
async def test_missing_window_before_the_event_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, fallback: str
) -> None:
    async with harness_with_workers(monkeypatch) as (fake, skipping, _):
        month_in_half_a_year = ((await skipping.get_current_time()).month + 5) % 12 + 1
        never: dict[str, Any] = {**WINDOW, "schedule": f"0 2 1 {month_in_half_a_year} *"}
        handle = await ready_with_rules(fake, scheduledChange={**WINDOWS, "windows": [never], "fallback": fallback})
        now = await skipping.get_current_time()
        event_start = now + timedelta(days=2)
        await send_message(fake, handle, starts=event_start)
        await wait_until_skipping_time(skipping, lambda: is_reported(handle, "no window opens before"))
        assert any("no window opens before" in message for _, _, message in fake.events.published)
        if fallback == "drain":
            assert abs(await read_drain_start(fake, skipping, handle) - (event_start - LEAD)) < timedelta(minutes=1)
        else:
            await skipping.sleep(timedelta(days=3))
            assert await is_in_phase(handle, Phase.READY)
