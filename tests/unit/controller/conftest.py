"""Fixtures for tests of the controller."""

import pytest

from tests.support.controller.planner_thread import start_planner_thread
from tests.support.logs import plain_log

__all__ = ["plain_log"]


@pytest.fixture(autouse=True)
def planner_in_a_thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planners start in milliseconds, except in tests that request `planner_in_a_process`."""
    if "planner_in_a_process" not in request.fixturenames:
        monkeypatch.setattr("tenure.controller.planning.planner_process.start_planner", start_planner_thread)


@pytest.fixture
def planner_in_a_process() -> None:
    """Planners run in a separate process, as in a worker."""
