"""Pods with volumes on real components: pending until their claim is usable, then on a node in the volume's zone."""

from functools import partial
from typing import Any

from tenure.apis import labels
from tests.support.product.cluster_scope import object_names
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct

ZONE = "us-west-2b"


async def test_pod_waits_for_its_claim_and_runs_in_the_volume_zone(product: InstalledProduct) -> None:
    async with product.scope("volumes") as scope:
        await scope.create_deployment(1, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": scope.name}}])
        pod = await wait_until(partial(_assert_one_pod, scope.pods))
        missing = f"PersistentVolumeClaim default/{scope.name} does not exist"
        await wait_until(partial(scope.assert_event, pod, "FailedScheduling", missing))
        assert not await scope.nodeclaims()
        for manifest in (_volume(scope.name), _claim(scope.name)):
            await scope.apply_manifest(manifest)
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: scope.assert_nodes_initialized(1))
        (node,) = await scope.nodes()
        assert node["metadata"]["labels"][labels.ZONE] == ZONE
        await scope.assert_one_node_launched()


async def _assert_one_pod(pods: Any) -> str:
    found = object_names(await pods())
    assert len(found) == 1, found
    return found[0]


def _volume(name: str) -> dict[str, Any]:
    """In one zone, as an EBS volume; nothing is attached, since no CSI driver runs here."""
    in_zone = {"key": labels.ZONE, "operator": "In", "values": [ZONE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nfs": {"server": "nowhere", "path": "/"},
            "claimRef": {"namespace": "default", "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}},
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
