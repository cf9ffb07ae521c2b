"""A separate control plane for the tests of the sandbox, without CRDs and other components."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tenure.sandbox.environment import Sandbox
from tenure.sandbox.kube_client import KubeApi
from tenure.sandbox.spec import Plan


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    plan = Plan(parts=("kubernetes",), manifests=())
    with Sandbox(tmp_path_factory.mktemp("cluster"), plan=plan) as sandbox:
        yield sandbox
        sandbox.check()


@pytest.fixture
async def api(cluster: Sandbox) -> AsyncIterator[KubeApi]:
    """An admin client of the API server. Nodes and pods of the default namespace are deleted at the end."""
    async with cluster.cluster.client() as client:
        yield client
        for path in ("/api/v1/nodes", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0"):
            await client.request("DELETE", path)
