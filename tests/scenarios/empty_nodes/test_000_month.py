"""Promise 1 over a month, on the time-skipping server with the ports faked. `TENURE_FAULTS` says how many go wrong.

The month in full is `TENURE_DAYS=30 TENURE_FAULTS=10000`. With restarts every task begins with a replay of its history;
`TENURE_RESTARTS=0` makes it some times faster, and the one worker remembers its workflows as usual.
"""

import os
from datetime import timedelta

import pytest

from tests.scenarios.empty_nodes.empty_node_monitor import BlockingReasonAudit
from tests.scenarios.empty_nodes.month import Month
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness

FAULTS = int(os.environ.get("TENURE_FAULTS", "100"))
SEED = int(os.environ.get("TENURE_SEED", "1"))
LASTS = timedelta(days=int(os.environ.get("TENURE_DAYS", "1")))
RESTARTS = float(os.environ.get("TENURE_RESTARTS", "0.2"))
SHORT = 200
"""Events of a run, where every task begins with a replay of it."""
SLOTS = 6
FAULTS_A_STEP = 20


@pytest.mark.row("000-i")
@pytest.mark.timeout(900 + 2 * FAULTS)
async def test_in_a_month_of_faults_no_node_is_empty_for_long_without_a_reason_that_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
            monkeypatch.setattr("workflows.activity_options.CONTINUE_AS_NEW_AT_EVENTS", SHORT)
        month = Month(fake, seed=SEED, slots=SLOTS, restarts=RESTARTS)
        async with month.running():
            vigil = await _run_month(month)
        print(vigil.report())
        assert not vigil.broken, vigil.broken
        assert month.fault_count >= FAULTS - FAULTS % FAULTS_A_STEP


async def _run_month(month: Month) -> BlockingReasonAudit:
    vigil, steps = BlockingReasonAudit(month), max(1, FAULTS // FAULTS_A_STEP)
    ends = await month.current_time() + LASTS
    for number in range(steps):
        await month.step(due=(number + 1) * FAULTS_A_STEP)
        left = (ends - await month.current_time()) / (steps - number)
        await month.advance(max(left * month.dice.uniform(0.2, 1.8), timedelta(0)), vigil.check)
        await month.wait_until_settled()
        await vigil.check()
        if number % 10 == 0:
            print(f"{ends - await month.current_time()} left: {vigil.report()}", flush=True)
    assert sum(slot.nodeclaim_count for slot in month.slots) > steps
    return vigil
