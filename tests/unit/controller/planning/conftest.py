"""A pod that is pending, and plans for it."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.controller.planning.launches import Launches, web
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness, running_provisioner


@pytest.fixture
async def harness() -> AsyncIterator[ProvisionerHarness]:
    async with running_provisioner() as harness:
        yield harness


@pytest.fixture
def launches(harness: ProvisionerHarness) -> Launches:
    harness.apply_objects("pods", web("p0"))
    harness.scheduler_messages.message = "0/4 nodes are available: 4 Insufficient cpu."
    return Launches(harness)
