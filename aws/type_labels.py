"""The labels that a node of an instance type will have: key to possible values, Karpenter's rules.

A well-known key that is not among them does not exist on such a node.
"""

import re
from collections.abc import Mapping
from typing import Final

from aws.families import Family
from aws.type_info import TypeInfo
from model import labels

_CATEGORY: Final = re.compile(r"(^[a-z]+)(-[0-9]+tb)?([0-9]+).*\.")

TYPE_KEYS: Final = (labels.AWS_WELL_KNOWN | {labels.WINDOWS_BUILD}) - {labels.ZONE_ID}
"""Keys whose absence from a type means that its nodes do not have them."""


def type_labels(info: TypeInfo, family: Family, region: str, zones: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """`zones`: those that offer the type and have a subnet, each with its id (which may be unknown)."""
    found: dict[str, tuple[str, ...]] = {
        labels.INSTANCE_TYPE: (info.name,),
        labels.ARCH: (info.architecture,),
        labels.OS: _os(info, family),
        labels.ZONE: tuple(sorted(zones)),
        labels.REGION: (region,),
        labels.CAPACITY_TYPE: tuple(u for u in (labels.ON_DEMAND, labels.SPOT) if u in info.usage_classes),
        labels.INSTANCE_TENANCY: labels.TENANCIES,
    }
    ids = tuple(sorted(zone_id for zone_id in zones.values() if zone_id))
    if ids:
        found[labels.ZONE_ID] = ids
    if family.windows_build:
        found[labels.WINDOWS_BUILD] = (family.windows_build,)
    found.update((key, (value,)) for key, value in (_named(info) | _sized(info) | _accelerated(info)).items())
    return found


def _os(info: TypeInfo, family: Family) -> tuple[str, ...]:
    """No Windows image runs on arm64, so that nothing fits there."""
    return () if family.os == "windows" and info.architecture != "amd64" else (family.os,)


def _named(info: TypeInfo) -> dict[str, str]:
    family, _, size = info.name.partition(".")
    named = {
        labels.INSTANCE_FAMILY: family,
        labels.INSTANCE_SIZE: size,
        labels.INSTANCE_CAPABILITY_FLEX: _bool("-flex" in family),
        labels.INSTANCE_HYPERVISOR: info.hypervisor,
        labels.INSTANCE_ENCRYPTION_IN_TRANSIT: _bool(info.encryption_in_transit),
    }
    match = _CATEGORY.match(info.name)
    if match:
        named |= {labels.INSTANCE_CATEGORY: match[1], labels.INSTANCE_GENERATION: match[3]}
    if info.cpu_manufacturer:
        named[labels.INSTANCE_CPU_MANUFACTURER] = info.cpu_manufacturer
    if info.enclaves:
        named[labels.NITRO_SANDBOX] = "true"
    return named


def _sized(info: TypeInfo) -> dict[str, str]:
    sizes = {
        labels.INSTANCE_CPU: info.vcpus,
        labels.INSTANCE_MEMORY: info.memory_mib,
        labels.INSTANCE_CPU_CLOCK_SPEED: info.clock_mhz,
        labels.INSTANCE_EBS_BANDWIDTH: info.ebs_mbps,
        labels.INSTANCE_NETWORK_BANDWIDTH: info.network_mbps,
        labels.INSTANCE_LOCAL_NVME: info.nvme_gb,
    }
    return {key: str(size) for key, size in sizes.items() if size}


def _accelerated(info: TypeInfo) -> dict[str, str]:
    found: dict[str, str] = {}
    if len(info.gpus) == 1:
        gpu = info.gpus[0]
        found |= {
            labels.INSTANCE_GPU_NAME: gpu.name,
            labels.INSTANCE_GPU_MANUFACTURER: gpu.manufacturer,
            labels.INSTANCE_GPU_COUNT: str(gpu.count),
            labels.INSTANCE_GPU_MEMORY: str(gpu.memory_mib),
        }
    devices = info.neuron or info.accelerators
    if len(devices) == 1:
        device = devices[0]
        found |= {
            labels.INSTANCE_ACCELERATOR_NAME: device.name,
            labels.INSTANCE_ACCELERATOR_MANUFACTURER: "aws" if info.neuron else device.manufacturer,
            labels.INSTANCE_ACCELERATOR_COUNT: str(device.count),
        }
    return found


def _bool(value: bool) -> str:
    return "true" if value else "false"
