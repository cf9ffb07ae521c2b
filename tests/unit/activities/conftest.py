"""New fake ports for each test of an activity."""

import pytest

from tests.support.logs import plain_log
from tests.unit.activities.builders import FakeCluster

__all__ = ["plain_log"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Fake ports whose activities poll without the usual intervals."""
    monkeypatch.setattr("activities.nodeclaim.drain.FIRST_POLL_SECONDS", 0.001)
    monkeypatch.setattr("activities.nodeclaim.drain_pass.MIN_DRAIN", 0.0)
    monkeypatch.setattr("activities.nodeclaim.drain_pass.REFRESH", 0.0)
    monkeypatch.setattr("activities.nodeclaim.drain.MIN_BLOCKED_SECONDS", 0.0)
    monkeypatch.setattr("activities.nodeclaim.drain.PROGRESS_SECONDS", 3600.0)
    monkeypatch.setattr("activities.nodeclaim.instance.FIRST_POLL_SECONDS", 0.001)
    return FakeCluster()
