"""Dynamic Resource Allocation on real components: kube-scheduler allocates devices that simulated drivers publish."""

import pytest

from tenure.apis.labels import INSTANCE_TYPE, NODEPOOL, REQUESTED_DRA_DRIVERS
from tenure.kube.client.resources import NODES, RESOURCE_SLICES
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import Object, pending_pod, pod_spec
from tests.support.product.product import DedicatedProduct
from tests.support.product.underutilized_nodes import CONSOLIDATION

ONE_GPU, FOUR_GPUS, ONE_NEURON_DEVICE = "g5.xlarge", "g5.12xlarge", "trn1.2xlarge"
A10G = (
    "device.driver == 'gpu.nvidia.com'",
    "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA A10G'",
    "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('20Gi')) >= 0",
)
TRAINIUM = (
    "device.driver == 'neuron.aws.com'",
    "device.attributes['neuron.aws.com'].resourceType == 'neuron_device'",
    f"device.attributes['neuron.aws.com'].instanceType == '{ONE_NEURON_DEVICE}'",
)
"""Selectors of a DeviceClass, and the last one of the request."""
Selectors = tuple[str, str, str]
MOVE_SECONDS = 240.0


async def test_pods_with_gpu_claims_move_only_to_nodes_with_free_gpus(own_product: DedicatedProduct) -> None:
    """All pods fit one node by CPU, and its four GPUs are enough for four of the five."""
    await own_product.ensure_worker(IGNORE_DRA_REQUESTS="false")
    async with own_product.scope("dra", types=(ONE_GPU, FOUR_GPUS), after="Never") as scope:
        await create_claim_objects(scope)
        await use_all_gpus(scope, ONE_GPU, 1)
        await use_all_gpus(scope, FOUR_GPUS, 4)
        nodes = {one["metadata"]["labels"][INSTANCE_TYPE]: one["metadata"]["name"] for one in await scope.nodes()}
        claims = {one["status"]["nodeName"]: one["metadata"]["name"] for one in await scope.nodeclaims()}
        await own_product.patch(scope.pool_path, {"spec": {"disruption": CONSOLIDATION}})
        await assert_throughout(lambda: scope.assert_nodes_initialized(2), seconds=20)
        await scope.scale_deployment(3, f"{scope.name}-{FOUR_GPUS}")
        removed = [claims[nodes[ONE_GPU]]]
        await wait_until(lambda: scope.assert_nodeclaims_deleted(removed), seconds=MOVE_SECONDS)
        await wait_until(lambda: scope.assert_pods_running(1, f"{scope.name}-{ONE_GPU}"))
        assert await own_product.kube.request("GET", NODES.path(nodes[FOUR_GPUS]))


async def test_unsupported_claim_is_refused_by_name(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(IGNORE_DRA_REQUESTS="false")
    async with own_product.scope("dra-all", types=(ONE_GPU,)) as scope:
        await create_claim_objects(scope, allocationMode="All")
        pod = pending_pod(scope.name, "all", cpu="10m")
        pod["spec"] |= claims_of(scope)
        await scope.apply_manifest(pod)
        await wait_until(
            lambda: scope.assert_event(
                f"{scope.name}-all", "FailedScheduling", "spec.devices.requests[gpu].exactly.allocationMode"
            )
        )
        await assert_throughout(scope.assert_no_nodes, seconds=5)


@pytest.mark.parametrize(
    ("name", "selectors", "driver", "expected"),
    [("gpu", A10G, "gpu.nvidia.com", ONE_GPU), ("neuron", TRAINIUM, "neuron.aws.com", ONE_NEURON_DEVICE)],
)
async def test_pending_pod_with_claim_gets_a_node(
    own_product: DedicatedProduct, name: str, selectors: Selectors, driver: str, expected: str
) -> None:
    """The cheapest type with the device is launched, and its driver publishes the device before initialization."""
    await own_product.ensure_worker(IGNORE_DRA_REQUESTS="false", AWS_FEATURE_GATES="DRANVIDIAGPU=true,DRANeuron=true")
    types = ("m5.large", ONE_GPU, FOUR_GPUS, ONE_NEURON_DEVICE)
    async with own_product.scope(f"dra-{name}", types=types) as scope:
        await create_claim_objects(scope, selectors)
        await scope.create_deployment(1, scope.name, **pod_spec(scope.name, cpu="10m"), **claims_of(scope))
        await wait_until(lambda: scope.assert_pods_running(1, scope.name))
        await wait_until(lambda: scope.assert_nodes_initialized(1))
        (node,), (claim,) = await scope.nodes(), await scope.nodeclaims()
        assert node["metadata"]["labels"][INSTANCE_TYPE] == expected
        assert claim["metadata"]["annotations"][REQUESTED_DRA_DRIVERS] == driver
        assert not any("device" in key for key in claim["spec"]["resources"]["requests"])


def claims_of(scope: ClusterScope) -> Object:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": scope.name}]}


async def create_claim_objects(scope: ClusterScope, selectors: Selectors = A10G, **exactly: str) -> None:
    """A DeviceClass and a template of one of its devices, both with the scope's name."""
    api = {"apiVersion": "resource.k8s.io/v1"}
    *of_class, of_request = [{"cel": {"expression": one}} for one in selectors]
    meta = {"name": scope.name}
    await scope.apply_manifest(api | {"kind": "DeviceClass", "metadata": meta, "spec": {"selectors": of_class}})
    request = {"name": "gpu", "exactly": {"deviceClassName": scope.name, "selectors": [of_request], **exactly}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    metadata = meta | {"namespace": "default"}
    await scope.apply_manifest(api | {"kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec})


async def use_all_gpus(scope: ClusterScope, kind: str, gpus: int) -> None:
    """Run a node of this type for a pod without claim, then pods with one GPU each; only the latter stay."""
    holder, users = f"{scope.name}-holder-{kind}", f"{scope.name}-{kind}"
    before = await scope.nodes()
    selector = {NODEPOOL: scope.name, INSTANCE_TYPE: kind}
    await scope.create_deployment(1, holder, nodeSelector=selector)
    await wait_until(lambda: scope.assert_pods_running(1, holder))
    await wait_until(lambda: scope.assert_nodes_initialized(len(before) + 1))
    await wait_until(lambda: assert_slices(scope))
    await scope.create_deployment(gpus, users, **pod_spec(scope.name, cpu="100m"), **claims_of(scope))
    await wait_until(lambda: scope.assert_pods_running(gpus, users))
    await scope.scale_deployment(0, holder)


async def assert_slices(scope: ClusterScope) -> None:
    """Each Node of the scope has a ResourceSlice."""
    slices = (await scope.product.kube.request("GET", RESOURCE_SLICES.path()))["items"]
    nodes = {one["metadata"]["name"] for one in await scope.nodes()}
    assert nodes <= {one["spec"].get("nodeName") for one in slices}
