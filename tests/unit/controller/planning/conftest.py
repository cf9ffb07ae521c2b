"""A pod that is pending, and plans for it."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.controller.planning.launches import Launches, web
from tests.unit.controller.planning.provisioner_harness import running_provisioner


@pytest.fixture
async def launches() -> AsyncIterator[Launches]:
    async with running_provisioner() as harness:
        harness.apply_objects("pods", web("p0"))
        harness.scheduler_messages.message = "0/4 nodes are available: 4 Insufficient cpu."
        yield Launches(harness)
