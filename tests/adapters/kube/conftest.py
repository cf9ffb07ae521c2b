"""Adapters on the world's real API server with the rights that ship with the worker, and an admin to set the stage."""

import uuid
from collections.abc import AsyncIterator, Callable

import pytest

from tenure.kube.adapters.build import KubeAdapters, connect_all
from tenure.kube.client.client import KubeClient, connect
from tests.support.product.shared_sandbox import SharedSandbox


@pytest.fixture(scope="session")
async def kube(shared_sandbox: SharedSandbox) -> AsyncIterator[KubeAdapters]:
    adapters = await connect_all(str(shared_sandbox.service_account_kubeconfig("tenure", "tenure")))
    yield adapters
    await adapters.close()


@pytest.fixture(scope="session")
async def admin(shared_sandbox: SharedSandbox) -> AsyncIterator[KubeClient]:
    client = await connect(str(shared_sandbox.kubeconfig))
    yield client
    await client.close()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"
