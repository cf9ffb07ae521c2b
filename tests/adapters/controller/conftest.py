"""Clients of the shared sandbox, and unique names of objects."""

import uuid
from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.kube.adapters.build import KubeAdapters, connect_all
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_POOLS, NODES, PODS
from tests.adapters.controller.host_harness import Names
from tests.support.product.shared_sandbox import SharedSandbox


@pytest.fixture(scope="session")
async def kube(shared_sandbox: SharedSandbox) -> AsyncIterator[KubeAdapters]:
    """Adapters with the permissions of an administrator, for the arrangement of tests."""
    adapters = await connect_all(str(shared_sandbox.kubeconfig))
    yield adapters
    await adapters.close()


@pytest.fixture(scope="session")
async def worker_kube(shared_sandbox: SharedSandbox) -> AsyncIterator[KubeAdapters]:
    """The adapters of the host: the shipped permissions of the worker, through the fault proxy."""
    kubeconfig = shared_sandbox.service_account_kubeconfig("tenure", "tenure", through_proxy=True)
    adapters = await connect_all(str(kubeconfig))
    yield adapters
    await adapters.close()


@pytest.fixture(scope="session")
async def temporal(shared_sandbox: SharedSandbox) -> Client:
    return await Client.connect(shared_sandbox.temporal_address, data_converter=pydantic_data_converter)


@pytest.fixture
async def names(kube: KubeAdapters) -> AsyncIterator[Names]:
    """Creates unique names. Objects with these names are deleted at the end."""
    created: list[str] = []

    def name(prefix: str) -> str:
        created.append(f"{prefix}-{uuid.uuid4().hex[:8]}")
        return created[-1]

    yield name
    for one in created:
        for kind in (NODE_POOLS, EC2_NODE_CLASSES, NODES):
            await kube.client.send("DELETE", kind.path(one))
        await kube.client.send("DELETE", PODS.path(one, namespace="default"), body={"gracePeriodSeconds": 0})
    for claim in await kube.claims.list():
        await kube.claims.delete(claim.name, claim.uid)
        await kube.claims.release(claim.name, claim.uid)
