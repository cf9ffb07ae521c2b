"""A CapacityBuffer's capacity is provisioned, kept while unused, taken by pods, refilled, and released."""

import time
from functools import partial
from typing import Any

from tenure.apis import labels
from tenure.controller.capacity_buffers import WORKLOAD_POLL_SECONDS
from tests.support.product.cluster_scope import ClusterScope, condition_reason, condition_status
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import pod_spec
from tests.support.product.product import DedicatedProduct


async def test_buffer_capacity_exists_before_pods_and_is_refilled(own_product: DedicatedProduct) -> None:
    """Each pod fills a node of two CPUs. The NodePool's consolidateAfter is one second."""
    await own_product.ensure_worker(FEATURE_GATES="CapacityBuffer=true")
    async with own_product.scope("buffers") as scope:
        buffer_manifest = buffer(scope.name)
        await scope.apply_manifest(buffer_manifest)
        await wait_until(
            partial(
                _assert_buffer_condition, scope, buffer_manifest, "ReadyForProvisioning", "False", "PodTemplateNotFound"
            )
        )
        await scope.apply_manifest(template(scope.name))
        await wait_until(lambda: scope.assert_nodes_initialized(2))
        status = await wait_until(
            partial(_assert_buffer_condition, scope, buffer_manifest, "Provisioning", "True", "FitsExistingCapacity")
        )
        assert status["replicas"] == 2
        await assert_throughout(lambda: scope.assert_nodes_initialized(2), seconds=8)
        await scope.wait_until_nodes_launched(2)

        await own_product.kill_worker()
        await own_product.resume_worker()
        await assert_throughout(lambda: scope.assert_nodes_initialized(2), seconds=12)
        await scope.wait_until_nodes_launched(2)

        existing_nodes = {one["status"]["nodeName"] for one in await scope.nodeclaims()}
        await scope.create_deployment(1)
        await wait_until(lambda: scope.assert_pods_running(1))
        (pod,) = await scope.pods()
        assert pod["spec"]["nodeName"] in existing_nodes
        await wait_until(lambda: scope.assert_nodes_initialized(3))
        await scope.wait_until_nodes_launched(3)

        await own_product.delete(await own_product.kube.path_of(buffer_manifest))
        await wait_until(lambda: scope.assert_nodes_initialized(1))
        await scope.assert_pods_running(1)
        await scope.wait_until_nodes_launched(3)


async def test_buffer_follows_its_deployment_at_once(own_product: DedicatedProduct) -> None:
    """Without the watch of Deployments, the change would take effect within 30 seconds."""
    await own_product.ensure_worker(FEATURE_GATES="CapacityBuffer=true")
    async with own_product.scope("follows") as scope:
        await scope.create_deployment(1)
        ref = {"apiGroup": "apps", "kind": "Deployment", "name": scope.name}
        manifest = {**buffer(scope.name), "spec": {"scalableRef": ref, "percentage": 100}}
        await scope.apply_manifest(manifest)
        await wait_until(partial(_assert_replicas, scope, manifest, 1))
        for replicas in (2, 1, 2, 1):
            scaled_at = time.monotonic()
            await scope.scale_deployment(replicas)
            await wait_until(partial(_assert_replicas, scope, manifest, replicas))
            print(f"status.replicas={replicas} after {time.monotonic() - scaled_at:.1f} s")
            assert time.monotonic() - scaled_at < WORKLOAD_POLL_SECONDS / 2
        await own_product.delete(await own_product.kube.path_of(manifest))


async def _assert_replicas(scope: ClusterScope, manifest: dict[str, Any], replicas: int) -> None:
    found = await scope.product.kube.request("GET", await scope.product.kube.path_of(manifest))
    assert found.get("status", {}).get("replicas") == replicas, found.get("status")


async def _assert_buffer_condition(
    scope: ClusterScope, manifest: dict[str, Any], kind: str, status: str, why: str
) -> dict[str, Any]:
    found = await scope.product.kube.request("GET", await scope.product.kube.path_of(manifest))
    assert condition_status(found, kind) == status and why in condition_reason(found, kind), condition_reason(
        found, kind
    )
    buffer_status: dict[str, Any] = found["status"]
    return buffer_status


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
