"""Capacity, overhead and allocatable resources, against the values that Karpenter publishes for AL2023."""

from dataclasses import replace
from typing import Any

import pytest

from tenure.apis import labels
from tenure.aws.amifamily.families import GIB
from tenure.aws.instancetype.capacity import (
    MIB,
    capacity_of,
    eni_limited_pods,
    kube_reserved,
    overhead_of,
    parse_threshold,
    pods_of,
    reserved_millicores,
    storage_of,
)
from tenure.aws.instancetype.info import TypeInfo
from tenure.model.instance_types import InstanceType
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tests.support.aws.builders import SETTINGS, machine


def allocatable(name: str, **spec: Any) -> dict[str, int]:
    one = machine(name, **spec)
    capacity = capacity_of(one)
    overhead = overhead_of(one, capacity)
    return InstanceType(name=name, labels={}, capacity=capacity, overhead=overhead, offerings=()).allocatable()


@pytest.mark.parametrize(
    ("vcpus", "millicores"), [(1, 60), (2, 70), (3, 75), (4, 80), (8, 90), (9, 92), (16, 110), (36, 160), (96, 310)]
)
def test_reserved_cpu_is_computed_by_band(vcpus: int, millicores: int) -> None:
    assert reserved_millicores(vcpus) == millicores


@pytest.mark.parametrize(
    ("name", "resource", "count"),
    [
        ("g5.xlarge", labels.NVIDIA_GPU, 1),
        ("p4d.24xlarge", labels.NVIDIA_GPU, 8),
        ("p4d.24xlarge", labels.EFA, 4),
        ("inf2.xlarge", labels.NEURON, 1),
        ("inf2.xlarge", labels.NEURON_CORE, 2),
        ("inf1.xlarge", labels.NEURON_CORE, 4),
        ("inf2.48xlarge", labels.NEURON, 12),
        ("inf2.48xlarge", labels.NEURON_CORE, 24),
        ("trn1.32xlarge", labels.NEURON_CORE, 32),
        ("trn1.32xlarge", labels.EFA, 8),
        ("p5.48xlarge", labels.EFA, 32),
        ("m5n.24xlarge", labels.EFA, 1),
    ],
)
def test_accelerators_are_counted(name: str, resource: str, count: int) -> None:
    assert capacity_of(machine(name))[resource] == count


def test_type_without_accelerators_has_no_accelerator_resources() -> None:
    assert set(capacity_of(machine("t3.large"))) == {"cpu", "memory", "ephemeral-storage", "pods"}


@pytest.mark.parametrize(
    ("family", "kubelet", "pods"),
    [
        ("AL2023", {}, 29),
        ("AL2023", {"maxPods": 10}, 10),
        ("AL2023", {"podsPerCore": 4}, 8),
        ("AL2023", {"podsPerCore": 4, "maxPods": 5}, 5),
        ("Bottlerocket", {"podsPerCore": 4}, 29),
        ("Windows2022", {}, 110),
    ],
)
def test_pods_follow_kubelet_and_family(family: str, kubelet: dict[str, int], pods: int) -> None:
    assert pods_of(machine("m5.large", family, kubelet=kubelet)) == pods


def test_reserved_eni_reduces_pods_but_not_kube_reserved() -> None:
    one = machine("m5.large", settings=SETTINGS.model_copy(update={"reserved_enis": 1}))
    assert pods_of(one) == 2 * 9 + 2
    assert kube_reserved(one, {labels.PODS: pods_of(one)})[labels.MEMORY] == (11 * 29 + 255) * MIB


def test_no_remaining_eni_means_no_pods() -> None:
    assert eni_limited_pods(machine("m5.large"), 3) == 0


def test_efa_only_interface_on_first_card_uses_its_slot() -> None:
    plain = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    efa = {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}
    one = machine("p4d.24xlarge", networkInterfaces=[plain, efa])
    assert pods_of(one) == 14 * 49 + 2
    assert capacity_of(one)[labels.EFA] == 1


def test_ip_prefixes_do_not_change_pods_or_kube_reserved() -> None:
    one = machine("m5.large", kubelet={"maxPods": 110}, ipPrefixCount=4)
    assert pods_of(one) == 110
    assert kube_reserved(one, {labels.PODS: 110})[labels.MEMORY] == (11 * 29 + 255) * MIB


@pytest.mark.parametrize(("percent", "mebibytes"), [(0.075, 7577), (0.0, 8192), (0.02, 8028)])
def test_memory_is_reduced_by_vm_overhead_percent(percent: float, mebibytes: int) -> None:
    settings = SETTINGS.model_copy(update={"vm_memory_overhead_percent": percent})
    assert capacity_of(machine("m5.large", settings=settings))[labels.MEMORY] == mebibytes * MIB


def test_network_interfaces_of_nodeclass_decide_efa_count() -> None:
    plain = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    assert labels.EFA not in capacity_of(machine("p4d.24xlarge", networkInterfaces=[plain]))


def test_bottlerocket_reserves_memory_for_max_pods() -> None:
    one = machine("m5.large", "Bottlerocket", kubelet={"maxPods": 10})
    assert kube_reserved(one, {labels.PODS: 10})[labels.MEMORY] == (11 * 10 + 255) * MIB


def disk(device: str, size: str = "", **more: Any) -> dict[str, Any]:
    """A disk of this size, or of the size of its snapshot."""
    return {"deviceName": device, "ebs": {"volumeSize": size} if size else {"snapshotID": "snap-1"}, **more}


@pytest.mark.parametrize(
    ("family", "disks", "size"),
    [
        ("AL2023", [], 20 * GIB),
        ("Windows2022", [], 50 * GIB),
        ("Bottlerocket", [], 20 * GIB),
        ("Custom", [], 20 * GIB),
        ("AL2023", [disk("/dev/xvda", "60Gi")], 60 * GIB),
        ("AL2023", [disk("/dev/xvdb", "60Gi")], 20 * GIB),
        ("Bottlerocket", [disk("/dev/xvdb", "9Gi")], 9 * GIB),
        ("AL2023", [disk("/dev/xvda")], 20 * GIB),
        ("AL2023", [disk("/dev/a", "7Gi", rootVolume=True)], 7 * GIB),
        ("Custom", [disk("/dev/a", "7Gi"), {"deviceName": "/dev/b"}], 20 * GIB),
        ("Custom", [disk("/dev/a", "7Gi")], 7 * GIB),
        ("Custom", [disk("/dev/a", "7Gi", rootVolume=True), disk("/dev/b", "9Gi")], 7 * GIB),
        ("Windows2022", [disk("/dev/sda1")], 50 * GIB),
        ("Windows2022", [disk("/dev/sda1", "99Gi")], 99 * GIB),
        ("AL2023", [disk("/dev/a", rootVolume=True), disk("/dev/xvda", "60G")], 60 * 10**9),
    ],
)
def test_ephemeral_storage_is_size_of_data_disk(family: str, disks: list[dict[str, Any]], size: int) -> None:
    assert storage_of(machine("m5.large", family, blockDeviceMappings=disks)) == size


def test_raid0_uses_local_disks_if_any() -> None:
    assert storage_of(machine("g5.xlarge", instanceStorePolicy="RAID0")) == 250 * 10**9
    assert storage_of(machine("m5.large", instanceStorePolicy="RAID0")) == 20 * GIB


@pytest.mark.parametrize("name", ["d2.xlarge", "i2.xlarge", "m3.large"])
def test_raid0_does_not_use_local_disks_that_are_not_nvme(name: str) -> None:
    assert storage_of(machine(name, instanceStorePolicy="RAID0")) == 20 * GIB


def test_kubelet_settings_change_overhead_per_key() -> None:
    kubelet = {
        "kubeReserved": {"cpu": "100m"},
        "systemReserved": {"memory": "1Gi"},
        "evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi"},
        "evictionSoft": {"memory.available": "50%"},
    }
    found, plain = allocatable("m5.large", kubelet=kubelet), capacity_of(machine("m5.large"))
    five_percent = -(-plain[labels.MEMORY] * 5 // 100)
    assert found[labels.CPU] == 1900
    assert found[labels.MEMORY] == plain[labels.MEMORY] - 574 * MIB - GIB - five_percent
    assert found[labels.EPHEMERAL_STORAGE] == 18 * GIB


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *[("100Mi", 100 * MIB), ("10%", 100), ("0.15%", 2), ("100%", 0)],
        *[(text, None) for text in ("lots", "x%", "-5%", "nan%", "-inf%", "5 %", "1_0%")],
    ],
)
def test_eviction_thresholds_are_parsed(text: str, amount: int | None) -> None:
    assert parse_threshold(text, 1000) == amount


@pytest.mark.parametrize(("manufacturer", "resource"), [("AMD", labels.AMD_GPU), ("Habana", labels.GAUDI)])
def test_gpu_resource_depends_on_manufacturer(manufacturer: str, resource: str) -> None:
    """The type list has neither g4ad nor dl1, so the test changes a g5."""
    raw = all_types()["g5.xlarge"]
    gpu = {**raw["GpuInfo"]["Gpus"][0], "Manufacturer": manufacturer, "Count": 8}
    made = TypeInfo.from_ec2({**raw, "GpuInfo": {"Gpus": [gpu]}})
    found = capacity_of(replace(machine("g5.xlarge"), info=made))
    assert found[resource] == 8
    assert labels.NVIDIA_GPU not in found
