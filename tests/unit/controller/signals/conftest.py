"""A notifier whose signals are recorded."""

import pytest

from tests.unit.controller.signals.notifier_harness import NotifierHarness, build_notifier


@pytest.fixture
def harness() -> NotifierHarness:
    return build_notifier()
