"""Fixtures for tests of the controller."""

import pytest

from tests.support.controller.planner_thread import ThreadContext
from tests.support.logs import plain_log

__all__ = ["plain_log"]


@pytest.fixture(autouse=True)
def planner_in_a_thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planners start in milliseconds, except in tests that request `planner_in_a_process`."""
    if "planner_in_a_process" not in request.fixturenames:
        monkeypatch.setattr(
            "tenure.controller.planning.planner_process.multiprocessing.get_context", lambda _: ThreadContext()
        )


@pytest.fixture
def planner_in_a_process() -> None:
    """Planners run in a separate process, as in a worker."""
