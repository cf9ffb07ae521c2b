"""Fixtures for tests of commands."""

import pytest


@pytest.fixture(autouse=True)
def allow_slow_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal may respond slowly on a busy machine."""
    monkeypatch.setattr("tenure.cli.temporal_client.SECONDS", 60.0)
