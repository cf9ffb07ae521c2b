"""Fixtures for all tests of commands."""

import pytest


@pytest.fixture(autouse=True)
def long_temporal_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal may answer slowly on a busy machine."""
    monkeypatch.setattr("tenure.cli.temporal_client.SECONDS", 60.0)
