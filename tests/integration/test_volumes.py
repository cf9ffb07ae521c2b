"""Pods with volumes on the real parts: refused until their claim can be used, then on a node in the volume's zone."""

from functools import partial
from typing import Any

from tenure.apis import labels
from tests.support.product.eventually import eventually
from tests.support.product.product import Product
from tests.support.product.scene import names

ZONE = "us-west-2b"


async def test_a_pod_waits_for_its_claim_and_runs_where_the_volume_is(product: Product) -> None:
    async with product.scene("volumes") as scene:
        await scene.deploy(1, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": scene.name}}])
        pod = await eventually(partial(_one_pod, scene.pods))
        missing = f"PersistentVolumeClaim default/{scene.name} does not exist"
        await eventually(partial(scene.event, pod, "FailedScheduling", missing))
        assert not await scene.claims()
        for manifest in (_volume(scene.name), _claim(scene.name)):
            await scene.make(manifest)
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: scene.nodes_are_initialized(1))
        (node,) = await scene.nodes()
        assert node["metadata"]["labels"][labels.ZONE] == ZONE
        await scene.one_node_was_bought()


async def _one_pod(pods: Any) -> str:
    found = names(await pods())
    assert len(found) == 1, found
    return found[0]


def _volume(name: str) -> dict[str, Any]:
    """In one zone, as an EBS volume is, and with nothing to attach, since no driver runs here."""
    here = {"key": labels.ZONE, "operator": "In", "values": [ZONE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nfs": {"server": "nowhere", "path": "/"},
            "claimRef": {"namespace": "default", "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def _claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
