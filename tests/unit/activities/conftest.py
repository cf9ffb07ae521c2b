"""A fresh in-memory world for each test of an activity."""

import pytest

from tests.unit.activities.builders import Scene


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Looks are repeated without the pauses that spare a real API."""
    monkeypatch.setattr("activities.draining.LOOK_FIRST", 0.001)
    monkeypatch.setattr("activities.drain_stay.MIN_DRAIN", 0.0)
    monkeypatch.setattr("activities.drain_stay.REFRESH", 0.0)
    monkeypatch.setattr("activities.draining.SETTLED", 0.0)
    monkeypatch.setattr("activities.termination.LOOK_EVERY", 0.001)
    return Scene()
