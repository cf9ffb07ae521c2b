"""Adapters on the world's real API server with the rights that ship with the worker, and an admin to set the stage."""

import uuid
from collections.abc import AsyncIterator, Callable

import pytest

from kube.adapters import KubeAdapters, connect_all
from kube.client import KubeClient, connect
from sandbox.world import Sandbox


@pytest.fixture(scope="session")
async def kube(world: Sandbox) -> AsyncIterator[KubeAdapters]:
    adapters = await connect_all(str(world.service_account_kubeconfig("tenure", "tenure")))
    yield adapters
    await adapters.close()


@pytest.fixture(scope="session")
async def admin(world: Sandbox) -> AsyncIterator[KubeClient]:
    client = await connect(str(world.kubeconfig))
    yield client
    await client.close()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"
