"""A consumer of a fake queue."""

import pytest

from tests.unit.activities.interruption.consumer_harness import ConsumerHarness


@pytest.fixture
def harness() -> ConsumerHarness:
    return ConsumerHarness()
