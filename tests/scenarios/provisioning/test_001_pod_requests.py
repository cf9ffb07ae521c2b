"""Promise 1: nodes fit the pods as the API server makes them, and pods that Tenure does not understand cause none."""

import pytest

from tenure.apis.labels import INSTANCE_TYPE
from tenure.kube.client.resources import PODS
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import TWO_CPUS, Object, daemon_set, pending_pod
from tests.support.product.product import InstalledProduct

FOUR_CPUS = "m6i.xlarge"
FIELD = "resourceClaims"


@pytest.mark.row("001-n")
async def test_daemonset_counts_with_the_requests_of_a_limit_range(product: InstalledProduct) -> None:
    """The template has no requests. With those of the LimitRange, its pod and the other one need more than two CPUs."""
    async with product.scope("001-n", types=(TWO_CPUS, FOUR_CPUS)) as scope:
        metadata = {"name": scope.name, "namespace": scope.name}
        await scope.apply_manifest({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scope.name}})
        limits = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
        await scope.apply_manifest(
            {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}
        )
        agent = daemon_set(scope.name, pool=scope.name) | {"metadata": metadata}
        del agent["spec"]["template"]["spec"]["containers"][0]["resources"]
        await scope.apply_manifest(agent)
        await scope.create_deployment(1)
        await wait_until(lambda: scope.assert_pods_running(1))
        nodes = {one["metadata"]["name"]: one for one in await scope.nodes()}
        (pod,) = await scope.pods()
        assert nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][INSTANCE_TYPE] == FOUR_CPUS
        assert len(await scope.nodeclaim_workflows()) <= 2, "at most one node is too small"


@pytest.mark.row("005-d")
async def test_pods_with_unsupported_field_cause_no_launch_and_keep_their_node(product: InstalledProduct) -> None:
    async with product.scope("005-d", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        await scope.apply_manifest(resource_claim(scope.name))
        await scope.apply_manifest(pod_with_claim(scope, "running", nodeName=node))
        await scope.apply_manifest(pod_with_claim(scope, "pending"))
        await wait_until(lambda: scope.assert_event(f"{scope.name}-pending", "FailedScheduling", FIELD))
        labels = {"metadata": {"labels": {"revision": "2"}}}
        await product.patch(scope.pool_path, {"spec": {"template": labels}})
        await wait_until(lambda: assert_reason(product, name))
        await assert_throughout(lambda: scope.assert_nodes_launched(1), seconds=5)
        await product.delete(PODS.path(f"{scope.name}-running", namespace="default"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


def resource_claim(name: str) -> Object:
    device = {"name": "device", "exactly": {"deviceClassName": "missing.example.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [device]}},
    }


async def assert_reason(product: InstalledProduct, claim: str) -> None:
    """`tenure why` names the field as the reason why the node is not replaced."""
    _, found = await product.run_cli("why", claim)
    assert "Drifted" in str(found) and FIELD in str(found), found


def pod_with_claim(scope: ClusterScope, name: str, **spec: str) -> Object:
    """A small pod with a claim for a device, which Tenure does not plan."""
    pod = pending_pod(scope.name, name, cpu="10m")
    pod["spec"] |= {"resourceClaims": [{"name": "device", "resourceClaimName": scope.name}], **spec}
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]
    return pod
