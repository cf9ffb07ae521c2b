"""Promise 2 for expensive nodes: a GPU node whose kubelet restarts keeps its pending pod."""

import pytest

from tenure.kube.client.resources import PODS
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.eventually import wait_until
from tests.support.product.objects import pod_spec
from tests.support.product.product import InstalledProduct

GPU = "nvidia.com/gpu"
NOT_READY_SECONDS = 15.0
"""Seconds for which the node is NotReady, less than consolidateAfter."""


@pytest.mark.row("001-b")
async def test_gpu_node_that_is_notready_for_a_short_time_is_not_replaced(product: InstalledProduct) -> None:
    async with product.scope("001-b", types=["g4dn.xlarge"], after="60s") as scope:
        (claim,) = await scope.run_pods(1, containers=pod_spec(scope.name, **{GPU: "1"})["containers"])
        node = claim["status"]["nodeName"]
        await scope.inject_node_fault(NotReady(for_seconds=NOT_READY_SECONDS), node=node)
        await wait_until(lambda: scope.assert_node_not_ready(node))
        (pod,) = await scope.pods()
        await product.delete(PODS.path(pod["metadata"]["name"], namespace="default"))
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: scope.assert_node_ready_status(node, ready="True"))
        assert [pod["spec"]["nodeName"] for pod in await scope.pods()] == [node]
        await scope.assert_one_node_launched()
