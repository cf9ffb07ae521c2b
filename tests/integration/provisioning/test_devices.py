"""Pods that request devices on real components: the instance type has the device, and its image supports it.

Each test waits until the pod runs: the plan counted the device, the launch chose a type with it, and the Node was
initialized only after the device appeared.
"""

from tests.support.product.objects import Object, pod_spec
from tests.support.product.product import InstalledProduct


async def test_pod_runs_with_nvidia_gpu(product: InstalledProduct) -> None:
    node = await _assert_runs_with_device(product, "device-gpu", "g5.xlarge", "nvidia.com/gpu", 1)
    assert node["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-name"] == "a10g"


async def test_pod_runs_with_neuron_cores(product: InstalledProduct) -> None:
    await _assert_runs_with_device(product, "device-neuron", "inf2.xlarge", "aws.amazon.com/neuroncore", 2)


async def test_pod_runs_with_branch_interface(product: InstalledProduct) -> None:
    await _assert_runs_with_device(product, "device-eni", "m6i.large", "vpc.amazonaws.com/pod-eni", 9)


async def test_pod_runs_with_efa(product: InstalledProduct) -> None:
    await _assert_runs_with_device(product, "device-efa", "c6gn.16xlarge", "vpc.amazonaws.com/efa", 1)


async def _assert_runs_with_device(
    product: InstalledProduct, name: str, instance_type: str, resource: str, count: int
) -> Object:
    """The NodePool also allows a cheaper type without the device. Returns the pod's Node."""
    async with product.scope(name, types=("t3.medium", instance_type)) as scope:
        containers = pod_spec(name, cpu="500m", **{resource: str(count)})["containers"]
        (claim,) = await scope.run_pods(1, containers=containers)
        (node,) = await scope.nodes()
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == instance_type
        assert int(claim["status"]["capacity"][resource]) == int(node["status"]["capacity"][resource]) >= count
        return node
