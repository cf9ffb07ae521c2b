"""Pods that ask for devices get a machine that has them, on the real parts: each kind once, with the image for it.

A scenario is over only when the pod runs, so that the plan counted the device, the launch bought it, and the Node was
initialized no sooner than the device was there.
"""

from tests.support.product.objects import Object, pod_spec
from tests.support.product.product import Product


async def test_nvidia_gpus(product: Product) -> None:
    node = await _runs_with(product, "device-gpu", "g5.xlarge", "nvidia.com/gpu", 1)
    assert node["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-name"] == "a10g"


async def test_neuron_cores(product: Product) -> None:
    await _runs_with(product, "device-neuron", "inf2.xlarge", "aws.amazon.com/neuroncore", 2)


async def test_branch_interfaces_of_pods(product: Product) -> None:
    await _runs_with(product, "device-eni", "m6i.large", "vpc.amazonaws.com/pod-eni", 9)


async def test_efa(product: Product) -> None:
    await _runs_with(product, "device-efa", "c6gn.16xlarge", "vpc.amazonaws.com/efa", 1)


async def _runs_with(product: Product, name: str, wanted: str, resource: str, count: int) -> Object:
    """Of a cheaper type without the device and one that has it the pool takes the second: the pod's Node."""
    async with product.scene(name, types=("t3.medium", wanted)) as scene:
        containers = pod_spec(name, cpu="500m", **{resource: str(count)})["containers"]
        (claim,) = await scene.run(1, containers=containers)
        (node,) = await scene.nodes()
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == wanted
        assert int(claim["status"]["capacity"][resource]) == int(node["status"]["capacity"][resource]) >= count
        return node
