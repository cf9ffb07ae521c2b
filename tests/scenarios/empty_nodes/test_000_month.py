"""Promise 1 over a month, on the time-skipping server with fake ports. `TENURE_FAULTS` is the number of faults.

The full month is `TENURE_DAYS=30 TENURE_FAULTS=10000`. With restarts every task replays its history.
`TENURE_RESTARTS=0` is several times faster, with one worker that caches its workflows.
"""

import os
from datetime import timedelta

import pytest

from tests.scenarios.empty_nodes.empty_node_monitor import EmptyNodeMonitor
from tests.scenarios.empty_nodes.month import Month
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness

FAULTS = int(os.environ.get("TENURE_FAULTS", "40"))
SEED = int(os.environ.get("TENURE_SEED", "1"))
DURATION = timedelta(days=int(os.environ.get("TENURE_DAYS", "1")))
RESTARTS = float(os.environ.get("TENURE_RESTARTS", "0.2"))
MAX_RUN_EVENTS = 200
"""Events of a run: every task replays them."""
SLOTS = 6
FAULTS_A_STEP = 20


@pytest.mark.row("000-i")
@pytest.mark.timeout(900 + 2 * FAULTS)
async def test_no_node_stays_empty_without_current_reason_in_a_month_of_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("nodeclaim.drain.FIRST_POLL_SECONDS", 0.01),
        ("nodeclaim.drain.MAX_POLL_SECONDS", 0.05),
        ("nodeclaim.drain.MIN_BLOCKED_SECONDS", 0.1),
    ):
        monkeypatch.setattr(f"activities.{name}", value)
    monkeypatch.setattr("activities.nodeclaim.drain_pass.MIN_DRAIN", 0.0)
    async with time_skipping() as skipping:
        fake = WorkerHarness.on(skipping)
        if RESTARTS:
            fake = WorkerHarness.on(skipping, max_cached_workflows=0)
            monkeypatch.setattr("workflows.activity_options.CONTINUE_AS_NEW_AT_EVENTS", MAX_RUN_EVENTS)
        month = Month(fake, seed=SEED, slots=SLOTS, restarts=RESTARTS)
        async with month.running():
            monitor = await _run_month(month)
        print(monitor.report())
        assert not monitor.violations, monitor.violations
        assert month.fault_count >= FAULTS - FAULTS % FAULTS_A_STEP


async def _run_month(month: Month) -> EmptyNodeMonitor:
    monitor, steps = EmptyNodeMonitor(month), max(1, FAULTS // FAULTS_A_STEP)
    ends = await month.current_time() + DURATION
    for number in range(steps):
        await month.step(due=(number + 1) * FAULTS_A_STEP)
        step_length = (ends - await month.current_time()) / (steps - number)
        await month.advance(max(step_length * month.dice.uniform(0.2, 1.8), timedelta(0)), monitor.check)
        await month.wait_until_settled()
        await monitor.check()
        if number % 10 == 0:
            print(f"{ends - await month.current_time()} left: {monitor.report()}", flush=True)
    assert sum(slot.nodeclaim_count for slot in month.slots) > steps
    return monitor
