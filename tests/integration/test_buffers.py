"""A CapacityBuffer's life: room is bought, kept though nobody uses it, taken by pods, refilled, and let go."""

from functools import partial
from typing import Any

from tenure.apis import labels
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import pod_spec
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, condition, reason


async def test_room_is_there_before_the_pods_are(own_product: OwnProduct) -> None:
    """Nodes of two CPUs, for pods that fill one each; an empty node of the pool goes after a second."""
    await own_product.work(FEATURE_GATES="CapacityBuffer=true")
    async with own_product.scene("buffers") as scene:
        room = buffer(scene.name)
        await scene.make(room)
        await eventually(partial(_says, scene, room, "ReadyForProvisioning", "False", "PodTemplateNotFound"))
        await scene.make(template(scene.name))
        await eventually(lambda: scene.nodes_are_initialized(2))
        status = await eventually(partial(_says, scene, room, "Provisioning", "True", "FitsExistingCapacity"))
        assert status["replicas"] == 2
        await throughout(lambda: scene.nodes_are_initialized(2), seconds=8)
        await scene.nodes_were_bought(2)

        await own_product.kill()
        await own_product.go_on()
        await throughout(lambda: scene.nodes_are_initialized(2), seconds=12)
        await scene.nodes_were_bought(2)

        standing = {one["status"]["nodeName"] for one in await scene.claims()}
        await scene.deploy(1)
        await eventually(lambda: scene.pods_run(1))
        (pod,) = await scene.pods()
        assert pod["spec"]["nodeName"] in standing
        await eventually(lambda: scene.nodes_are_initialized(3))
        await scene.nodes_were_bought(3)

        await own_product.delete(await own_product.kube.path_of(room))
        await eventually(lambda: scene.nodes_are_initialized(1))
        await scene.pods_run(1)
        await scene.nodes_were_bought(3)


async def _says(scene: Scene, manifest: dict[str, Any], kind: str, status: str, why: str) -> dict[str, Any]:
    found = await scene.product.kube.request("GET", await scene.product.kube.path_of(manifest))
    assert condition(found, kind) == status and why in reason(found, kind), reason(found, kind)
    answered: dict[str, Any] = found["status"]
    return answered


def buffer(name: str, replicas: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": labels.CAPACITYBUFFER_API_VERSION,
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"podTemplateRef": {"name": name}, "replicas": replicas},
    }


def template(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "template": {"metadata": {"labels": {"app": f"{name}-room"}}, "spec": pod_spec(name)},
    }
