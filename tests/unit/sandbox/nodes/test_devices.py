"""Extended resources and labels of a node: by type, image, interfaces and operating system."""

import pytest

from tenure.kube.facts.resource_slices import resource_slice, usable_devices
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.nodes.capacity import (
    found_by_plugins,
    initial_extended_resources,
    labels_of_kind,
    max_pods,
    memory_bytes,
    resources_of,
)
from tenure.sandbox.nodes.device_driver import build_slices
from tenure.sandbox.nodes.instances import Instance, MachineType
from tenure.sandbox.nodes.userdata import Join

NVIDIA, NEURON, CORES = "nvidia.com/gpu", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
AL2023 = "amazon-eks-node-al2023-x86_64-{}-1.34-v20250920"
WINDOWS = "Windows_Server-{}-English-Core-EKS_Optimized-1.34-2025.09.15"


def machine(name: str) -> MachineType:
    return MachineType.from_ec2(all_types()[name])


def instance(kind: str = "m5.large", image: str = "", *, platform: str = "", efa: int = 0) -> Instance:
    return Instance(
        id="i-1", state="running", instance_type=kind, zone="us-west-2a", image_name=image, platform=platform,
        efa_interfaces=efa,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "image", "found"),
    [
        ("g5.xlarge", AL2023.format("nvidia"), {NVIDIA: 1}),
        ("g5.xlarge", AL2023.format("standard"), {}),
        ("g5.xlarge", "my-own-gpu-image", {NVIDIA: 1}),
        ("g5.xlarge", "bottlerocket-aws-k8s-1.34-nvidia-x86_64-v1.46.0-abc", {NVIDIA: 1}),
        ("g5.xlarge", "bottlerocket-aws-k8s-1.34-x86_64-v1.46.0-abc", {}),
        ("g5.xlarge", "amazon-eks-gpu-node-1.32-v20250920", {NVIDIA: 1}),
        ("g5.xlarge", "amazon-eks-node-1.32-v20250920", {}),
        ("inf2.xlarge", AL2023.format("neuron"), {NEURON: 1, CORES: 2}),
        ("inf2.xlarge", AL2023.format("nvidia"), {}),
        ("inf2.xlarge", "bottlerocket-aws-k8s-1.34-x86_64-v1.46.0-abc", {NEURON: 1, CORES: 2}),
        ("trn1.32xlarge", AL2023.format("neuron"), {NEURON: 16, CORES: 32}),
    ],
)
def test_device_plugins_need_driver_in_image(kind: str, image: str, found: dict[str, int]) -> None:
    assert found_by_plugins(instance(kind, image), machine(kind)) == found


def test_driver_publishes_one_slice_of_the_devices_in_use() -> None:
    (found,) = build_slices("n", "uid", machine("g5.12xlarge"), {NVIDIA: 4})
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid"
    (devices,) = [one.devices for one in (resource_slice(found),)]
    assert [one.key for one in usable_devices([resource_slice(found)])] == [one.key for one in devices]
    selector = "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA A10G'"
    memory = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('20Gi')) >= 0"
    assert len(devices) == 4 and all(one.matches((selector, memory)) for one in devices)
    assert build_slices("n", "uid", machine("g5.12xlarge"), {}) == []
    (neuron,) = build_slices("n", "uid", machine("trn1.32xlarge"), {NEURON: 16})
    attributes = "device.attributes['neuron.aws.com']"
    selectors = (f"{attributes}.instanceType == 'trn1.32xlarge'", f"{attributes}.resourceType == 'neuron_device'")
    assert [one.matches(selectors) for one in resource_slice(neuron).devices] == [True] * 16
    assert build_slices("n", "uid", machine("inf2.xlarge"), {NEURON: 1}) == []
    (efa,) = build_slices("n", "uid", machine("c6in.32xlarge"), {"vpc.amazonaws.com/efa": 2})
    assert [one.matches(("device.attributes['dra.net'].rdma",)) for one in resource_slice(efa).devices] == [True, True]


def test_efa_count_follows_launch_interfaces() -> None:
    assert found_by_plugins(instance("c6in.32xlarge"), machine("c6in.32xlarge")) == {}
    assert found_by_plugins(instance("c6in.32xlarge", efa=2), machine("c6in.32xlarge")) == {"vpc.amazonaws.com/efa": 2}


def test_trunk_node_has_branch_interfaces_and_label() -> None:
    assert initial_extended_resources(instance(), machine("m5.large")) == {"vpc.amazonaws.com/pod-eni": 9}
    assert labels_of_kind(instance(), machine("m5.large")) == {"vpc.amazonaws.com/has-trunk-attached": "true"}
    assert initial_extended_resources(instance("t3.large"), machine("t3.large")) == {}
    assert labels_of_kind(instance("t3.large"), machine("t3.large")) == {}


@pytest.mark.parametrize(("year", "build"), [("2019", "10.0.17763"), ("2022", "10.0.20348"), ("2025", "10.0.26100")])
def test_windows_node_has_build_label_and_pod_addresses(year: str, build: str) -> None:
    one = instance(image=WINDOWS.format(year), platform="windows")
    assert labels_of_kind(one, machine("m5.large")) == {"node.kubernetes.io/windows-build": build}
    assert initial_extended_resources(one, machine("m5.large")) == {"vpc.amazonaws.com/PrivateIPv4Address": 9}
    assert max_pods(machine("m5.large"), Join(cluster="demo", system="windows")) == 110


def test_extended_resources_are_fully_allocatable() -> None:
    facts = machine("m5.large")
    plain = resources_of(facts, Join(cluster="demo"), memory=memory_bytes(facts, 0.05), disk_gib=20)
    more = plain.with_extended({"vpc.amazonaws.com/pod-eni": 9})
    assert more.capacity == plain.capacity | {"vpc.amazonaws.com/pod-eni": "9"}
    assert more.allocatable == plain.allocatable | {"vpc.amazonaws.com/pod-eni": "9"}
