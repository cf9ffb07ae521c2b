"""Amounts that are expressions, from the class to the node: what is planned is what the kubelet is told."""

from typing import Any

from tests.support.product.eventually import eventually
from tests.support.product.objects import node_class
from tests.support.product.product import OwnProduct

KUBELET = {"maxPods": "vcpus * 3 + 2", "systemReserved": {"cpu": "vcpus * 100"}}


async def test_a_node_takes_as_many_pods_as_its_types_expression_says(own_product: OwnProduct) -> None:
    """Eight pods of next to nothing: two vCPUs take eight, of which DaemonSets and the like have none here."""
    await own_product.work(AWS_FEATURE_GATES="NodeClassCEL=true")
    async with own_product.scene("expressions", of_class="expressions") as scene:
        made = node_class("expressions")
        made["spec"]["kubelet"] = KUBELET
        await scene.make(made)
        await scene.deploy(9, containers=[small()])
        await eventually(lambda: scene.pods_run(9))
        claims = await eventually(lambda: scene.nodes_are_initialized(2))
        nodes = await scene.nodes()
        assert {node["status"]["capacity"]["pods"] for node in nodes} == {"8"}
        assert {claim["status"]["capacity"]["pods"] for claim in claims} == {"8"}
        assert {claim["status"]["allocatable"]["cpu"] for claim in claims} == {"1730m"}


def small() -> dict[str, Any]:
    return {"name": "pause", "image": "pause", "resources": {"requests": {"cpu": "10m"}}}
