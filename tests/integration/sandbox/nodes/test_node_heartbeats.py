"""A running kubelet renews its conditions: a Node that Kubernetes set to Unknown becomes Ready again."""

from collections.abc import AsyncIterator

import pytest

from tenure.sandbox.environment import Sandbox
from tenure.sandbox.kube_client import KubeApi
from tenure.sandbox.nodes.simulator import Simulator
from tests.integration.sandbox.builders import condition
from tests.integration.sandbox.nodes.instance_builders import Cloud, running_simulator
from tests.integration.sandbox.nodes.test_simulator import wait_until_ready

LOST = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
async def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
async def simulator(cluster: Sandbox, cloud: Cloud) -> AsyncIterator[Simulator]:
    async with running_simulator(cloud, cluster.kubeconfig) as running:
        yield running


async def test_node_set_to_unknown_becomes_ready_again(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await wait_until_ready(api, name)
    patch = {"status": {"conditions": [LOST]}}
    patched = await api.request("PATCH", f"/api/v1/nodes/{name}/status", patch, STRATEGIC)
    assert condition(patched, "Ready") == "Unknown"
    await wait_until_ready(api, name)
