"""Kubelet settings as CEL expressions: the plan uses the values that the kubelet gets."""

from typing import Any

from tests.support.product.eventually import wait_until
from tests.support.product.objects import node_class
from tests.support.product.product import DedicatedProduct

KUBELET = {"maxPods": "vcpus * 3 + 2", "systemReserved": {"cpu": "vcpus * 100"}}


async def test_max_pods_expression_limits_pods_per_node(own_product: DedicatedProduct) -> None:
    """maxPods is eight for two vCPUs, and no DaemonSet runs here, so nine tiny pods need two nodes."""
    await own_product.ensure_worker(AWS_FEATURE_GATES="NodeClassCEL=true")
    async with own_product.scope("expressions", of_class="expressions") as scope:
        nodeclass = node_class("expressions")
        nodeclass["spec"]["kubelet"] = KUBELET
        await scope.apply_manifest(nodeclass)
        await scope.create_deployment(9, containers=[small_container()])
        await wait_until(lambda: scope.assert_pods_running(9))
        claims = await wait_until(lambda: scope.assert_nodes_initialized(2))
        nodes = await scope.nodes()
        assert {node["status"]["capacity"]["pods"] for node in nodes} == {"8"}
        assert {claim["status"]["capacity"]["pods"] for claim in claims} == {"8"}
        assert {claim["status"]["allocatable"]["cpu"] for claim in claims} == {"1730m"}


def small_container() -> dict[str, Any]:
    return {"name": "pause", "image": "pause", "resources": {"requests": {"cpu": "10m"}}}
