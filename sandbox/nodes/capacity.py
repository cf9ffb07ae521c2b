"""What a kubelet reports as capacity and allocatable, from the machine's hardware and the kubelet's settings.

The formulas are those of EKS's images. Memory is what the operating system sees: less than the type's nominal size,
and never below what planners expect by default, unless a rule says so.
"""

import math
from typing import Self

from pydantic import BaseModel, ConfigDict

from model.quantity import cpu_millis, format_cpu, parse_quantity
from sandbox.nodes.machine_types import MachineType
from sandbox.nodes.userdata import Join

MIB = 2**20
GIB = 2**30
_ARM64_FIRMWARE_MIB = 64
_DEFAULT_EVICTION = {"memory.available": "100Mi", "nodefs.available": "10%"}
# Share of each core kept for the kubelet, in thousandths of a percent: first, second, third and fourth, the rest.
_CPU_BANDS = ((1, 60), (1, 10), (2, 5))
_CPU_REST_PER_4_CORES = 10


class Resources(BaseModel):
    """Two ResourceLists as the API has them."""

    model_config = ConfigDict(frozen=True)

    capacity: dict[str, str]
    allocatable: dict[str, str]

    def with_extended(self, amounts: dict[str, int]) -> Self:
        """With these extended resources, all of which can be allocated."""
        more = {name: str(count) for name, count in amounts.items()}
        return self.model_copy(update={"capacity": self.capacity | more, "allocatable": self.allocatable | more})


def memory_bytes(machine: MachineType, overhead: float) -> int:
    """What the operating system sees; `overhead` is the share of the nominal size that it does not. Whole KiB."""
    nominal = machine.memory_mib - (_ARM64_FIRMWARE_MIB if machine.architecture == "arm64" else 0)
    return nominal * MIB - math.ceil(nominal * MIB * overhead / 1024) * 1024


def max_pods(machine: MachineType, join: Join) -> int:
    by_interfaces = 0 if join.system == "windows" else machine.eni_limited_pods
    limit = join.max_pods or by_interfaces or 110
    return min(limit, join.pods_per_core * machine.vcpus) if join.pods_per_core else limit


def resources_of(machine: MachineType, join: Join, *, memory: int, disk_gib: int) -> Resources:
    """Without extended resources. `memory` is in bytes."""
    disk = machine.local_storage_gb * 10**9 if join.raid0 and machine.local_storage_gb else disk_gib * GIB
    pods = str(max_pods(machine, join))
    reserved = _reserved(machine, join)
    thresholds = _DEFAULT_EVICTION | join.eviction_hard
    free_memory = memory - reserved["memory"] - _threshold(thresholds["memory.available"], memory)
    free_disk = disk - reserved["ephemeral-storage"] - _threshold(thresholds["nodefs.available"], disk)
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


def _reserved(machine: MachineType, join: Join) -> dict[str, int]:
    """Millicores of cpu, bytes of the rest: kube-reserved plus system-reserved."""
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


def _threshold(text: str, capacity: int) -> int:
    """An eviction threshold in bytes: a quantity, or a percentage of the capacity rounded up."""
    if not text.endswith("%"):
        return parse_quantity(text)
    percent = float(text[:-1])
    # A hundred percent switches the signal off.
    return 0 if percent >= 100 else math.ceil(capacity * percent / 100)
