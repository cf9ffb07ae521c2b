"""A time-skipping server and fake ports for each test, so that no test skips the time of another."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness
from tests.support.logs import plain_log
from tests.support.workflows.histories import replay_histories
from tests.unit.workflows.meters import FakeMeter
from workflows import metrics, nodeclaim_context

__all__ = ["plain_log"]

POLL_SECONDS = {
    "nodeclaim.instance.STOP_START_POLL_SECONDS": 0.02,
    "nodeclaim.drain.FIRST_POLL_SECONDS": 0.01,
    "nodeclaim.drain.MAX_POLL_SECONDS": 0.05,
    "runtime.HEARTBEAT_EVERY_SECONDS": 0.2,
    "nodeclaim.drain.HEARTBEAT_EVERY_SECONDS": 0.1,
    "nodeclaim.drain.RARE_HEARTBEAT_SECONDS": 0.1,
    "nodeclaim.drain.MIN_BLOCKED_SECONDS": 0.1,
    "nodeclaim.drain.PROGRESS_SECONDS": 0.0,
    "nodeclaim.drain_pass.MIN_DRAIN": 0.0,
    "nodeclaim.drain_pass.REFRESH": 0.0,
    "nodeclaim.hooks.FIRST_POLL_SECONDS": 0.02,
    "nodeclaim.hooks.MAX_POLL_SECONDS": 0.1,
    "nodeclaim.instance.FIRST_POLL_SECONDS": 0.02,
    "nodeclaim.instance.MAX_POLL_SECONDS": 0.1,
}
"""Intervals at which activities poll. They sleep in real time, which the server does not skip."""


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> FakeMeter:
    """Records the metrics of a NodeClaim that runs without a server."""
    recorded = FakeMeter()
    monkeypatch.setattr(metrics, "workflow", recorded)
    monkeypatch.setattr(nodeclaim_context, "workflow", recorded)
    monkeypatch.setattr(nodeclaim_context, "publish_details", recorded.set_current_details)
    return recorded


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


@pytest.fixture(autouse=True)
def short_poll_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make activities poll the fakes often."""
    for name, seconds in POLL_SECONDS.items():
        monkeypatch.setattr(f"activities.{name}", seconds)


@pytest.fixture
async def fake(skipping: WorkflowEnvironment, request: pytest.FixtureRequest) -> AsyncIterator[WorkerHarness]:
    """A worker that runs workflows and activities against fake ports."""
    async with WorkerHarness.on(skipping).running_worker() as working:
        yield working
    if request.config.getoption("--replay-histories"):
        await replay_histories(skipping.client, f"{working.cluster}/")


@pytest.fixture
async def planning(fake: WorkerHarness) -> AsyncIterator[WorkerHarness]:
    """The worker, with a process that hosts the watch and the planner."""
    async with fake.running_planner():
        yield fake
