"""Fixtures for tests of commands."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def allow_slow_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal may respond slowly on a busy machine."""
    monkeypatch.setattr("tenure.cli.temporal_client.SECONDS", 60.0)


@pytest.fixture(autouse=True)
def restore_log_configuration() -> Iterator[None]:
    """Commands configure the log of their process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
