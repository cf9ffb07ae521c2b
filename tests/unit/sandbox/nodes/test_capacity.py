"""Resources that kubelets report: values of the EKS formulas, and each kubelet setting."""

import pytest

from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.nodes.boot import disk_gib
from tenure.sandbox.nodes.capacity import GIB, MIB, max_pods, memory_bytes, resources_of
from tenure.sandbox.nodes.instances import Instance, MachineType
from tenure.sandbox.nodes.userdata import Join

JOIN = Join(cluster="demo")


def machine(name: str) -> MachineType:
    return MachineType.from_ec2(all_types()[name])


def estimate(name: str) -> int:
    """Memory in bytes that a planner expects after 7.5% of overhead."""
    facts = machine(name)
    nominal = facts.memory_mib - (64 if facts.architecture == "arm64" else 0)
    return (nominal - -(-nominal * 75 // 1000)) * MIB


@pytest.mark.parametrize(
    ("name", "pods", "millis", "mebibytes", "gibibytes"),
    [("a1.medium", 8, 940, 1392, 17), ("a1.large", 29, 1930, 3055, 17)],
)
def test_allocatable_follows_eks_formulas(name: str, pods: int, millis: int, mebibytes: int, gibibytes: int) -> None:
    """The values are from Karpenter's documentation of the estimated memory."""
    found = resources_of(machine(name), JOIN, memory=estimate(name), disk_gib=20)
    assert found.allocatable["cpu"] == f"{millis}m"
    assert found.allocatable["pods"] == str(pods)
    assert int(found.allocatable["memory"].removesuffix("Ki")) // 1024 == mebibytes
    assert int(found.allocatable["ephemeral-storage"]) // GIB == gibibytes


@pytest.mark.parametrize("name", ["t3.micro", "m5.large", "m7g.8xlarge", "c6a.48xlarge"])
def test_real_memory_is_between_estimate_and_nominal(name: str) -> None:
    facts = machine(name)
    assert estimate(name) <= memory_bytes(facts, overhead=0.05) < facts.memory_mib * MIB


def test_max_pods_is_kubelet_setting_or_eni_limit() -> None:
    facts = machine("m5.large")
    assert max_pods(facts, JOIN) == 29
    assert max_pods(facts, Join(cluster="demo", max_pods=110)) == 110
    assert max_pods(facts, Join(cluster="demo", pods_per_core=4)) == 8
    assert max_pods(facts, Join(cluster="demo", pods_per_core=400)) == 29


def test_kube_reserved_overrides_per_key_and_system_reserved_adds() -> None:
    facts = machine("m5.large")
    plain = resources_of(facts, JOIN, memory=8 * GIB, disk_gib=20)
    changed = resources_of(
        facts,
        Join(cluster="demo", kube_reserved={"cpu": "200m"}, system_reserved={"memory": "100Mi"}),
        memory=8 * GIB,
        disk_gib=20,
    )
    assert (plain.allocatable["cpu"], changed.allocatable["cpu"]) == ("1930m", "1800m")
    less = int(plain.allocatable["memory"][:-2]) - int(changed.allocatable["memory"][:-2])
    assert less == 100 * 1024


def test_eviction_thresholds_are_quantities_or_percentages() -> None:
    facts = machine("m5.large")

    def allocatable(threshold: str) -> int:
        join = Join(cluster="demo", eviction_hard={"memory.available": threshold})
        return int(resources_of(facts, join, memory=8 * GIB, disk_gib=20).allocatable["memory"][:-2])

    assert allocatable("100%") - allocatable("500Mi") == 500 * 1024
    assert allocatable("100%") - allocatable("10%") == -(-8 * GIB // 10 // 1024)


def test_raid0_uses_local_disks_as_ephemeral_storage() -> None:
    found = resources_of(machine("g5.xlarge"), Join(cluster="demo", raid0=True), memory=8 * GIB, disk_gib=20)
    assert found.capacity["ephemeral-storage"] == f"{250 * 10**9 // 1024}Ki"


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("m5.large", {}),
        ("g5.xlarge", {"nvidia.com/gpu": 1}),
        ("p4d.24xlarge", {"nvidia.com/gpu": 8}),
        ("inf2.xlarge", {"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2}),
    ],
)
def test_devices_are_counted_like_device_plugins(name: str, devices: dict[str, int]) -> None:
    assert machine(name).devices == devices


def test_disk_size_is_size_of_data_volume() -> None:
    plain = Instance(id="i-1", state="running", instance_type="m5.large", zone="us-west-2a")

    def disk(join: Join, **volumes: int) -> int:
        named = {f"/dev/{device}": size for device, size in volumes.items()}
        return disk_gib(plain.model_copy(update={"volumes": named}), join)

    assert disk(JOIN, xvda=30, xvdb=100) == 30
    assert disk(Join(cluster="demo", data_device="/dev/xvdb"), xvda=4, xvdb=100) == 100
    assert disk(JOIN, sda1=50, sdb=10) == 50
    assert disk(JOIN) == 20
