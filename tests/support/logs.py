"""Fixture for tests that read the log."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def plain_log() -> Iterator[None]:
    """structlog with its default configuration, independent of earlier tests."""
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)
