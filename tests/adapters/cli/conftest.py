"""For all tests of commands."""

import pytest


@pytest.fixture(autouse=True)
def long_temporal_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Temporal that is there may take long to answer on a busy machine."""
    monkeypatch.setattr("tenure.cli.temporal_client.SECONDS", 60.0)
