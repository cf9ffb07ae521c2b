"""Helpers for promise 5: pods with memory requests, discovered capacity, and EC2NodeClasses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from tenure.apis import labels
from tenure.apis.quantity import parse_quantity
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODES
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.workflow_states import ProvisioningState
from tenure.sandbox.nodes.fault_rules import LessMemory
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import query_state, wait_until
from tests.support.product.objects import Object, node_class, pod_spec
from tests.support.product.product import InstalledProduct
from workflows import ids

MIB = 1 << 20
SMALL, REAL, LARGE = "1Gi", 7000, "6600Mi"
"""SMALL fits any node. REAL is the memory in MiB that a machine with 8 GiB reports, which leaves 6326 MiB for pods.
LARGE is between that and the estimate of 6903 MiB.
"""


async def deploy_pods(scope: ClusterScope, replicas: int, memory: str, name: str = "") -> str:
    """A Deployment of pods with this memory request."""
    return await scope.create_deployment(
        replicas, name, containers=pod_spec(scope.name, cpu="1", memory=memory)["containers"]
    )


async def inject_less_memory(
    scope: ClusterScope, instance_type: str, mebibytes: int = REAL, count: int | None = None
) -> None:
    """Nodes of this type report this much memory."""
    await scope.inject_node_fault(LessMemory(mebibytes=mebibytes), instance_type=instance_type, count=count)


async def launched_types(scope: ClusterScope) -> list[str]:
    """Instance types of all nodes that were ever launched, in order."""
    nodeclaims = scope.product.nodeclaim_workflows
    return [
        nodeclaim.instance_type if nodeclaim.open else (await nodeclaims.fetch_outcome(nodeclaim)).instance_type
        for nodeclaim in await scope.nodeclaim_workflows()
    ]


async def wait_until_launched_types(scope: ClusterScope, *types: str) -> None:
    """Exactly these types were launched."""

    async def check() -> None:
        found = await launched_types(scope)
        assert found == list(types), f"{scope.name}: {found}"

    await wait_until(check)
    await scope.wait_until_nodes_launched(len(types))


async def discovered_capacity(product: InstalledProduct) -> DiscoveredCapacity:
    """The discovered capacity in the Provisioning workflow's state."""
    handle = product.temporal.get_workflow_handle(ids.provisioning(product.sandbox.plan.cluster_name))
    return (await query_state(handle, ProvisioningState)).discovered_capacity.discovered


async def assert_discovered(product: InstalledProduct, image: str, instance_type: str, memory: int) -> None:
    """The Provisioning workflow has discovered this memory, in bytes."""
    found = (await discovered_capacity(product)).get_memory(image, instance_type)
    assert found == memory, f"{instance_type} of {image} has discovered memory {found}, not {memory}"


async def node_memory(product: InstalledProduct, claim: Object) -> int:
    """The memory that the Node reports, in bytes."""
    node = await product.kube.request("GET", NODES.path(claim["status"]["nodeName"]))
    return parse_quantity(node["status"]["capacity"]["memory"])


def created_at(thing: Object) -> datetime:
    return datetime.fromisoformat(thing["metadata"]["creationTimestamp"])


def instance_type_of(thing: Object) -> str:
    return str(thing["metadata"]["labels"][labels.INSTANCE_TYPE])


@asynccontextmanager
async def temporary_nodeclass(product: InstalledProduct, name: str, alias: str, **spec: Any) -> AsyncIterator[Object]:
    """An EC2NodeClass that is Ready. It is deleted at the end, with its launch templates."""
    path, manifest = EC2_NODE_CLASSES.path(name), node_class(name, alias)
    await product.kube.apply({**manifest, "spec": {**manifest["spec"], **spec}})
    try:
        yield await wait_until(lambda: product.assert_nodeclass_ready(name))
    finally:
        await product.delete(path)
    await wait_until(lambda: product.assert_deleted(path))
