"""Fixtures for tests of commands."""

import pytest

from tests.support.logs import plain_log

__all__ = ["plain_log"]


@pytest.fixture(autouse=True)
def allow_slow_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal may respond slowly on a busy machine."""
    monkeypatch.setattr("tenure.cli.temporal_client.SECONDS", 60.0)


@pytest.fixture(autouse=True)
def restore_log_configuration(plain_log: None) -> None:
    """Commands configure the log of their process."""
