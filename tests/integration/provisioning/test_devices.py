"""Pods that ask for devices get a machine that has them, on the real parts: each kind once, with the image for it.

A scenario is over only when the pod runs, so that the plan counted the device, the launch bought it, and the Node was
initialized no sooner than the device was there.
"""

from tests.support.product.objects import Object, pod_spec
from tests.support.product.product import InstalledProduct


async def test_nvidia_gpus(product: InstalledProduct) -> None:
    node = await _assert_runs_with_device(product, "device-gpu", "g5.xlarge", "nvidia.com/gpu", 1)
    assert node["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-name"] == "a10g"


async def test_neuron_cores(product: InstalledProduct) -> None:
    await _assert_runs_with_device(product, "device-neuron", "inf2.xlarge", "aws.amazon.com/neuroncore", 2)


async def test_branch_interfaces_of_pods(product: InstalledProduct) -> None:
    await _assert_runs_with_device(product, "device-eni", "m6i.large", "vpc.amazonaws.com/pod-eni", 9)


async def test_efa(product: InstalledProduct) -> None:
    await _assert_runs_with_device(product, "device-efa", "c6gn.16xlarge", "vpc.amazonaws.com/efa", 1)


async def _assert_runs_with_device(
    product: InstalledProduct, name: str, instance_type: str, resource: str, count: int
) -> Object:
    """Of a cheaper type without the device and one that has it the pool takes the second: the pod's Node."""
    async with product.scope(name, types=("t3.medium", instance_type)) as scope:
        containers = pod_spec(name, cpu="500m", **{resource: str(count)})["containers"]
        (claim,) = await scope.run_pods(1, containers=containers)
        (node,) = await scope.nodes()
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == instance_type
        assert int(claim["status"]["capacity"][resource]) == int(node["status"]["capacity"][resource]) >= count
        return node
