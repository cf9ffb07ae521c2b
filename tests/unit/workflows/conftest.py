"""A time-skipping server and a fake world for each test: no test skips the time of another."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.support.fakes.skipping import time_skipping
from tests.support.fakes.worker import World
from tests.support.logs import plain_log
from tests.unit.workflows.meters import Meter
from workflows import life, measures

__all__ = ["plain_log"]


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    """What a life without a server counts and measures."""
    found = Meter()
    monkeypatch.setattr(measures, "workflow", found)
    monkeypatch.setattr(life, "workflow", found)
    return found


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


@pytest.fixture
async def fake(
    skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[World]:
    """Workflows and activities at work on an in-memory world, which is looked at without the pauses of a real one."""
    monkeypatch.setattr("activities.draining.LOOK_FIRST", 0.01)
    monkeypatch.setattr("activities.draining.LOOK_SLOWEST", 0.05)
    monkeypatch.setattr("activities.drain_stay.MIN_DRAIN", 0.0)
    monkeypatch.setattr("activities.drain_stay.REFRESH", 0.0)
    monkeypatch.setattr("activities.draining.SETTLED", 0.1)
    cached = request.config.getoption("--workflow-cache")
    async with World(skipping.client, cached=cached).working() as working:
        yield working
