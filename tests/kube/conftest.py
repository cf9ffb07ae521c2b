"""Adapters on the world's real API server, and small objects to write there."""

import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kube.adapters import KubeAdapters, connect_all
from sandbox.world import Sandbox

Json = dict[str, Any]


@pytest.fixture(scope="session")
async def kube(world: Sandbox) -> AsyncIterator[KubeAdapters]:
    adapters = await connect_all(str(world.kubeconfig))
    yield adapters
    await adapters.close()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"
