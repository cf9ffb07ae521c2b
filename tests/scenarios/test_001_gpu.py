"""Promise 2 on machines that cost the most: a GPU node that restarts its kubelet keeps its pending pod."""

import pytest

from tenure.kube.client.resources import PODS
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.eventually import eventually
from tests.support.product.objects import pod_spec
from tests.support.product.product import Product

GPU = "nvidia.com/gpu"
OUT_FOR = 15.0
"""Seconds for which the node is NotReady; the consolidation after it could be emptied is later than that."""


@pytest.mark.row("001-b")
async def test_a_gpu_node_that_is_not_ready_for_a_while_buys_no_second_one(product: Product) -> None:
    async with product.scene("001-b", types=["g4dn.xlarge"], after="60s") as scene:
        (claim,) = await scene.run(1, containers=pod_spec(scene.name, **{GPU: "1"})["containers"])
        node = claim["status"]["nodeName"]
        await scene.trouble(NotReady(for_seconds=OUT_FOR), node=node)
        await eventually(lambda: scene.node_is_cordoned_off(node))
        (pod,) = await scene.pods()
        await product.delete(PODS.path(pod["metadata"]["name"], namespace="default"))
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: scene.node_is(node, ready="True"))
        assert [pod["spec"]["nodeName"] for pod in await scene.pods()] == [node]
        await scene.one_node_was_bought()
