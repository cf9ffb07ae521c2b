"""Capacity and overhead of an instance type, by Karpenter's formulas, and the volumes that the EBS CSI driver attaches
to a node of the type, before its CSINode states the number."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClassSpec
from tenure.apis.ec2nodeclass_instance import BlockDeviceMapping
from tenure.apis.quantity import QuantityError, parse_quantity, parse_resources
from tenure.apis.resources import add
from tenure.aws.amifamily.families import GIB, Family
from tenure.aws.amifamily.image_disks import UNKNOWN_DISKS, ImageDisks
from tenure.aws.instancetype.info import TypeInfo
from tenure.aws.instancetype.network_limits import branch_interfaces
from tenure.aws.kubelet.config import Kubelet, parse_percentage
from tenure.aws.settings import AwsSettings

MIB: Final = 1 << 20
_ARM_RESERVED_MIB: Final = 64
_DEFAULT_DISK: Final = 20 * GIB
_PODS_WITHOUT_ENI_LIMIT: Final = 110
_GPU_RESOURCES: Final = {"nvidia": labels.NVIDIA_GPU, "amd": labels.AMD_GPU, "habana": labels.GAUDI}
_EFA_ONLY: Final = "efa-only"


@dataclass(frozen=True, slots=True)
class Machine:
    """The input of capacity and overhead: an instance type under an EC2NodeClass."""

    info: TypeInfo
    family: Family
    kubelet: Kubelet
    spec: EC2NodeClassSpec
    settings: AwsSettings
    strategy: str = ""
    """Strategy of the placement group; empty without a group."""
    disks: ImageDisks = UNKNOWN_DISKS
    """Volumes of the image."""


def capacity_of(machine: Machine) -> dict[str, int]:
    """Millicores, bytes and counts; missing resources are left out."""
    found = {
        labels.CPU: machine.info.vcpus * 1000,
        labels.MEMORY: estimate_memory(machine),
        labels.EPHEMERAL_STORAGE: storage_of(machine),
        labels.PODS: pods_of(machine),
        **_device_capacity(machine),
    }
    return {key: amount for key, amount in found.items() if amount or key == labels.PODS}


def estimate_memory(machine: Machine) -> int:
    """Estimate in bytes, used until a node of this type and image has reported its capacity."""
    info = machine.info
    mib = info.memory_mib - (_ARM_RESERVED_MIB if info.architecture == "arm64" else 0)
    return (mib - ceil(mib * machine.settings.vm_memory_overhead_percent)) * MIB


def storage_of(machine: Machine) -> int:
    """Bytes of ephemeral storage on the disk with the kubelet's directories, or on the RAID of local disks.

    Images build the RAID of NVMe disks only. For a mapping with a snapshot and without a size, the default is used.
    Where mappings do not name the disk, it has the size that the image declares.
    """
    if machine.spec.instance_store_policy == "RAID0" and machine.info.nvme_gb:
        return machine.info.nvme_gb * 10**9
    named = _data_disks(machine)
    size = next((one.ebs.volume_size for one in named if one.ebs and one.ebs.volume_size), None)
    if size is not None:
        return parse_quantity(size)
    device = machine.disks.kubelet_device(machine.family)
    declared = machine.disks.size_of(device)
    if declared and (machine.spec.block_device_mappings or not machine.family.disks) and not named:
        return declared
    defaults = (disk.size for disk in machine.disks.default_disks(machine.family) if disk.device == device)
    return next(defaults, _DEFAULT_DISK)


def pods_of(machine: Machine) -> int:
    kubelet = machine.kubelet
    if kubelet.max_pods is not None:
        pods = kubelet.max_pods
    elif machine.family.eni_limited_pods:
        pods = eni_limited_pods(machine, machine.settings.reserved_enis)
    else:
        pods = _PODS_WITHOUT_ENI_LIMIT
    if kubelet.pods_per_core and machine.family.pods_per_core:
        return min(pods, kubelet.pods_per_core * machine.info.vcpus)
    return pods


def eni_limited_pods(machine: Machine, reserved: int) -> int:
    """Pods that get an address from the VPC CNI without prefixes; each interface uses one address itself."""
    efa_only = sum(
        1 for one in machine.spec.network_interfaces if one.network_card_index == 0 and one.interface_type == _EFA_ONLY
    )
    usable = machine.info.default_interfaces - reserved - efa_only
    return usable * (machine.info.ipv4_per_interface - 1) + 2 if usable > 0 else 0


def _data_disks(machine: Machine) -> list[BlockDeviceMapping]:
    """The mappings that may have the size, in order: the root volume, then the disk with the kubelet's directories."""
    mappings = machine.spec.block_device_mappings
    root = [one for one in mappings if one.root_volume]
    if not machine.family.data_device:
        return [*root, *mappings[-1:]]
    device = machine.disks.kubelet_device(machine.family)
    return [*root, *(one for one in mappings if one.device_name == device)]


def _device_capacity(machine: Machine) -> Mapping[str, int]:
    info = machine.info
    found: dict[str, int] = {}
    for gpu in info.gpus:
        resource = _GPU_RESOURCES.get(gpu.manufacturer)
        if resource:
            found[resource] = found.get(resource, 0) + gpu.count
    if info.neuron:
        found[labels.NEURON] = sum(device.count for device in info.neuron)
        found[labels.NEURON_CORE] = sum(device.count * device.cores for device in info.neuron)
    interfaces = machine.spec.network_interfaces
    efa_only = sum(1 for one in interfaces if one.interface_type == _EFA_ONLY)
    found[labels.EFA] = efa_only if interfaces else info.efa_interfaces
    found[labels.POD_ENI] = branch_interfaces(info.name)
    if machine.family.os == "windows":
        found[labels.PRIVATE_IPV4] = max(0, info.ipv4_per_interface - 1)
    return found


# Number of cores, and millicores reserved per core: the first core, the second, the third and fourth.
_CPU_BANDS: Final = ((1, 60), (1, 10), (2, 5))
_CPU_REST_PER_MILLE: Final = 2.5
_EVICTION_MEMORY: Final = 100 * MIB
_SIGNALS: Final = {"memory.available": labels.MEMORY, "nodefs.available": labels.EPHEMERAL_STORAGE}


def overhead_of(machine: Machine, capacity: Mapping[str, int]) -> dict[str, int]:
    """The sum of kube-reserved, system-reserved and eviction threshold, in millicores and bytes."""
    system = parse_resources(machine.kubelet.system_reserved)
    found = add(kube_reserved(machine, capacity), system, eviction_overhead(machine, capacity))
    return {key: amount for key, amount in found.items() if amount and key != "pid"}


def kube_reserved(machine: Machine, capacity: Mapping[str, int]) -> dict[str, int]:
    """Defaults by pods and cores; `kubelet.kubeReserved` overrides key by key."""
    pods = eni_limited_pods(machine, 0) if machine.family.eni_limited_overhead else capacity.get(labels.PODS, 0)
    defaults = {
        labels.CPU: reserved_millicores(machine.info.vcpus),
        labels.MEMORY: (11 * pods + 255) * MIB,
        labels.EPHEMERAL_STORAGE: GIB,
    }
    return defaults | parse_resources(machine.kubelet.kube_reserved)


def reserved_millicores(vcpus: int) -> int:
    """6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest, truncated."""
    total, left = 0, vcpus
    for cores, per_mille in _CPU_BANDS:
        total += min(left, cores) * per_mille
        left -= min(left, cores)
    return total + int(left * _CPU_REST_PER_MILLE)


def eviction_overhead(machine: Machine, capacity: Mapping[str, int]) -> dict[str, int]:
    """Resources that the kubelet keeps free by hard eviction thresholds. Soft thresholds reserve nothing."""
    found = {
        labels.MEMORY: _EVICTION_MEMORY,
        labels.EPHEMERAL_STORAGE: ceil(capacity.get(labels.EPHEMERAL_STORAGE, 0) / 10),
    }
    for signal, resource in _SIGNALS.items():
        text = machine.kubelet.eviction_hard.get(signal)
        amount = None if text is None else parse_threshold(text, capacity.get(resource, 0))
        if amount is not None:
            found[resource] = amount
    return found


def parse_threshold(text: str, capacity: int) -> int | None:
    """A quantity, or a percentage of the capacity, rounded up; None for other text. 100 % disables the signal."""
    if text.endswith("%"):
        percent = parse_percentage(text)
        return None if percent is None else 0 if percent >= 100 else ceil(capacity * percent / 100)
    try:
        return parse_quantity(text)
    except QuantityError:
        return None


_DEFAULT_ATTACHMENTS: Final = 27
"""For types without a figure of EC2; shared."""
_ATTACHMENTS_WITHOUT_NITRO: Final = 39


def ebs_attachments_of(machine: Machine) -> int:
    """EC2's limit minus the volumes of the launch, by the driver's rule (aws-ebs-csi-driver, `pkg/cloud/limits`).

    EC2's figure excludes the primary network interface and the local disks. Where network interfaces share the limit,
    those of the launch count, and one that the VPC CNI attaches at its start. At least 1, as in the driver.
    """
    info = machine.info
    if info.hypervisor == "xen":
        limit, shared = _ATTACHMENTS_WITHOUT_NITRO, False
    else:
        limit, shared = info.ebs_attachments or _DEFAULT_ATTACHMENTS, info.shares_attachments
    if shared:
        limit -= _further_interfaces(machine)
    return max(1, limit - _launch_volumes(machine))


def _further_interfaces(machine: Machine) -> int:
    """Network interfaces without the primary one."""
    at_launch = max(1, len(machine.spec.network_interfaces))
    return min(at_launch + 1, max(at_launch, machine.info.default_interfaces)) - 1


def _launch_volumes(machine: Machine) -> int:
    """EBS volumes of the launch, with the root volume."""
    named = {one.device_name for one in machine.spec.block_device_mappings if one.ebs}
    if not named:
        named = {one.device for one in machine.disks.default_disks(machine.family)}
    return max(1, len(named | {device for device, _ in machine.disks.volumes}))
