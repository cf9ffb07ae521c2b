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


def test_raid0_uses_local_disks_as_ephemeral_storage() -> None:
    found = resources_of(machine("g5.xlarge"), Join(cluster="demo", raid0=True), memory=8 * GIB, disk_gib=20)
    assert found.capacity["ephemeral-storage"] == f"{250 * 10**9 // 1024}Ki"


def test_disk_size_is_size_of_data_volume() -> None:
    plain = Instance(id="i-1", state="running", instance_type="m5.large", zone="us-west-2a")

    def disk(join: Join, **volumes: int) -> int:
        named = {f"/dev/{device}": size for device, size in volumes.items()}
        return disk_gib(plain.model_copy(update={"volumes": named}), join)

    assert disk(JOIN, xvda=30, xvdb=100) == 30
    assert disk(Join(cluster="demo", data_device="/dev/xvdb"), xvda=4, xvdb=100) == 100
    assert disk(JOIN, sda1=50, sdb=10) == 50
    assert disk(JOIN) == 20
