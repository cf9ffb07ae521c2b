"""What the rows of promise 5 share: pods of some memory, what was learnt, and EC2NodeClasses of their own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from tenure.apis import labels
from tenure.apis.quantity import parse_quantity
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODES
from tenure.model.discovered_capacity import Learnt
from tenure.sandbox.nodes.fault_rules import LessMemory
from tests.support.product.eventually import eventually
from tests.support.product.objects import Object, node_class, pod_spec
from tests.support.product.product import Product
from tests.support.product.scene import Scene
from workflows import ids

MIB = 1 << 20
SMALL, REAL, LARGE = "1Gi", 7000, "6600Mi"
"""A pod for any node; MiB of a machine with 8 GiB that leave 6326 MiB for pods; a pod that is between that and the 6903
MiB that such a machine is estimated to leave."""


async def wants(scene: Scene, replicas: int, memory: str, name: str = "") -> str:
    """A Deployment of pods that ask for so much memory."""
    return await scene.deploy(replicas, name, containers=pod_spec(scene.name, cpu="1", memory=memory)["containers"])


async def has_less(scene: Scene, instance_type: str, mebibytes: int = REAL, count: int | None = None) -> None:
    """Machines of this type report so much memory."""
    await scene.trouble(LessMemory(mebibytes=mebibytes), of=instance_type, count=count)


async def bought(scene: Scene) -> list[str]:
    """The instance types of all that was ever launched, in order."""
    lives = scene.product.lives
    return [
        life.instance_type if life.open else (await lives.outcome(life)).instance_type for life in await scene.lives()
    ]


async def were_bought(scene: Scene, *types: str) -> None:
    """These, and nothing else."""

    async def check() -> None:
        found = await bought(scene)
        assert found == list(types), f"{scene.name}: {found}"

    await eventually(check)
    await scene.nodes_were_bought(len(types))


async def learnt(product: Product) -> Learnt:
    """What the Provisioning workflow keeps."""
    handle = product.temporal.get_workflow_handle(ids.provisioning(product.sandbox.plan.cluster_name))
    found: Learnt = await handle.query("machines", result_type=Learnt)
    return found


async def is_learnt(product: Product, image: str, instance_type: str, memory: int) -> None:
    """Bytes."""
    found = (await learnt(product)).memory(image, instance_type)
    assert found == memory, f"{instance_type} of {image} is known to have {found}, not {memory}"


async def memory_of(product: Product, claim: Object) -> int:
    """What its Node reports, in bytes."""
    node = await product.kube.request("GET", NODES.path(claim["status"]["nodeName"]))
    return parse_quantity(node["status"]["capacity"]["memory"])


def born(thing: Object) -> datetime:
    return datetime.fromisoformat(thing["metadata"]["creationTimestamp"])


def type_of(thing: Object) -> str:
    return str(thing["metadata"]["labels"][labels.INSTANCE_TYPE])


@asynccontextmanager
async def own_class(product: Product, name: str, alias: str, **spec: Any) -> AsyncIterator[Object]:
    """An EC2NodeClass that is Ready; it is gone at the end, and so are its launch templates."""
    path, manifest = EC2_NODE_CLASSES.path(name), node_class(name, alias)
    await product.kube.apply({**manifest, "spec": {**manifest["spec"], **spec}})
    try:
        yield await eventually(lambda: product.node_class_is_ready(name))
    finally:
        await product.delete(path)
    await eventually(lambda: product.is_gone(path))
