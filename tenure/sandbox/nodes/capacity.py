"""Capacity and allocatable that a kubelet reports, from the hardware of the machine and the kubelet's settings.

The formulas are those of EKS's images. Memory is the amount that the operating system sees: less than the nominal size
of the type, but not less than planners expect by default, unless a rule reduces it.

AWS's controllers add some extended resources at once, device plugins add others later. A device plugin finds GPUs and
Neuron chips only if the image has the driver. Names of EKS's images show this; other images are assumed to have it.
"""

import math
import re
from typing import Self

from pydantic import BaseModel, ConfigDict

from tenure.apis.quantity import cpu_millis, format_cpu, parse_quantity
from tenure.aws.instancetype.network_limits import branch_interfaces
from tenure.sandbox.nodes.instances import Instance, MachineType
from tenure.sandbox.nodes.userdata import Join

MIB = 2**20
GIB = 2**30
_ARM64_FIRMWARE_MIB = 64
_DEFAULT_EVICTION = {"memory.available": "100Mi", "nodefs.available": "10%"}
# Share of each core that is reserved for the kubelet, in thousandths: first, second, third and fourth, others.
_CPU_BANDS = ((1, 60), (1, 10), (2, 5))
_CPU_REST_PER_4_CORES = 10


class Resources(BaseModel):
    """Two ResourceLists in the format of the API."""

    model_config = ConfigDict(frozen=True)

    capacity: dict[str, str]
    allocatable: dict[str, str]

    def with_extended(self, amounts: dict[str, int]) -> Self:
        """Add extended resources, all of them allocatable."""
        more = {name: str(count) for name, count in amounts.items()}
        return self.model_copy(update={"capacity": self.capacity | more, "allocatable": self.allocatable | more})


def memory_bytes(machine: MachineType, overhead: float) -> int:
    """Memory of the operating system, in whole KiB. `overhead`: fraction of the nominal size that it lacks."""
    nominal = machine.memory_mib - (_ARM64_FIRMWARE_MIB if machine.architecture == "arm64" else 0)
    return nominal * MIB - math.ceil(nominal * MIB * overhead / 1024) * 1024


def max_pods(machine: MachineType, join: Join) -> int:
    by_interfaces = 0 if join.system == "windows" else machine.eni_limited_pods
    limit = join.max_pods or by_interfaces or 110
    return min(limit, join.pods_per_core * machine.vcpus) if join.pods_per_core else limit


def resources_of(machine: MachineType, join: Join, *, memory: int, disk_gib: int) -> Resources:
    """Capacity and allocatable without extended resources. `memory` is in bytes."""
    disk = machine.local_storage_gb * 10**9 if join.raid0 and machine.local_storage_gb else disk_gib * GIB
    pods = str(max_pods(machine, join))
    reserved = _reserved_resources(machine, join)
    thresholds = _DEFAULT_EVICTION | join.eviction_hard
    free_memory = memory - reserved["memory"] - _parse_threshold(thresholds["memory.available"], memory)
    free_disk = disk - reserved["ephemeral-storage"] - _parse_threshold(thresholds["nodefs.available"], disk)
    return Resources(
        capacity={
            "cpu": str(machine.vcpus),
            "memory": f"{memory // 1024}Ki",
            "ephemeral-storage": f"{disk // 1024}Ki",
            "pods": pods,
        },
        allocatable={
            "cpu": format_cpu(machine.vcpus * 1000 - reserved["cpu"]),
            "memory": f"{free_memory // 1024}Ki",
            "ephemeral-storage": str(free_disk),
            "pods": pods,
        },
    )


def _reserved_resources(machine: MachineType, join: Join) -> dict[str, int]:
    """kube-reserved plus system-reserved: CPU in millicores, others in bytes."""
    pods = max_pods(machine, join) if join.reserves_by_max_pods else machine.eni_limited_pods
    kube = {
        "cpu": f"{_kube_reserved_millis(machine.vcpus)}m",
        "memory": f"{11 * pods + 255}Mi",
        "ephemeral-storage": "1Gi",
    } | join.kube_reserved
    total = {"cpu": cpu_millis(kube["cpu"])}
    total["cpu"] += cpu_millis(join.system_reserved.get("cpu", "0"))
    for name in ("memory", "ephemeral-storage"):
        total[name] = parse_quantity(kube[name]) + parse_quantity(join.system_reserved.get(name, "0"))
    return total


def _kube_reserved_millis(cores: int) -> int:
    total = 0
    for width, per_core in _CPU_BANDS:
        total += min(cores, width) * per_core
        cores = max(0, cores - width)
    return total + cores * _CPU_REST_PER_4_CORES // 4


def _parse_threshold(text: str, capacity: int) -> int:
    """An eviction threshold in bytes: a quantity, or a percentage of the capacity rounded up."""
    if not text.endswith("%"):
        return parse_quantity(text)
    percent = float(text[:-1])
    # 100 percent disables the signal.
    return 0 if percent >= 100 else math.ceil(capacity * percent / 100)


POD_ENI = "vpc.amazonaws.com/pod-eni"
EFA = "vpc.amazonaws.com/efa"
PRIVATE_ADDRESS = "vpc.amazonaws.com/PrivateIPv4Address"
TRUNK_LABEL = {"vpc.amazonaws.com/has-trunk-attached": "true"}
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
_WINDOWS_BUILDS = {"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}
_NVIDIA, _NEURON = "nvidia.com/", "aws.amazon.com/neuron"
# Drivers by image name; the first match counts.
_DRIVERS = (
    (re.compile(r"amazon-eks-node-al2023-\w+-nvidia-"), (_NVIDIA,)),
    (re.compile(r"amazon-eks-node-al2023-\w+-neuron-"), (_NEURON,)),
    (re.compile(r"amazon-eks-node-al2023-\w+-standard-"), ()),
    (re.compile(r"amazon-eks-gpu-node-"), (_NVIDIA, _NEURON)),
    (re.compile(r"amazon-eks-(arm64-)?node-1\."), ()),
    (re.compile(r"bottlerocket-aws-k8s-[\d.]+-nvidia-"), (_NVIDIA,)),
    (re.compile(r"bottlerocket-aws-k8s-"), (_NEURON,)),
)


def initial_extended_resources(instance: Instance, machine: MachineType) -> dict[str, int]:
    """Resources from the VPC resource controller: branch interfaces of a trunk, addresses of a Windows node."""
    if instance.platform == "windows":
        return {PRIVATE_ADDRESS: machine.addresses_per_interface - 1}
    branches = branch_interfaces(machine.name)
    return {POD_ENI: branches} if branches else {}


def found_by_plugins(instance: Instance, machine: MachineType) -> dict[str, int]:
    """Devices such as GPUs if the image has the driver, and the EFA interfaces of the launch."""
    found = {name: count for name, count in machine.devices.items() if _has_driver(instance.image_name, name)}
    return found | ({EFA: instance.efa_interfaces} if instance.efa_interfaces else {})


def labels_of_kind(instance: Instance, machine: MachineType) -> dict[str, str]:
    """The label of a node with a trunk interface, and the build label of a Windows node."""
    if instance.platform != "windows":
        return TRUNK_LABEL if branch_interfaces(machine.name) else {}
    year = re.search(r"Windows_Server-(\d{4})-", instance.image_name)
    return {WINDOWS_BUILD: _WINDOWS_BUILDS.get(year[1] if year else "", _WINDOWS_BUILDS["2022"])}


def _has_driver(image_name: str, resource: str) -> bool:
    for pattern, drivers in _DRIVERS:
        if pattern.match(image_name):
            return any(resource.startswith(driver) for driver in drivers)
    return True
