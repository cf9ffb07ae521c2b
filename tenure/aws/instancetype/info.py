"""The used fields of DescribeInstanceTypes, and the labels of a type by Karpenter's rules.

Nodes of a type do not have the well-known labels that the type lacks.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tenure.apis import labels
from tenure.aws.amifamily.families import Family
from tenure.aws.instancetype.network_limits import network_mbps

_ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}
_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator in EC2's terms: GPU, inference accelerator or Neuron device."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int = 0
    cores: int = 0


@dataclass(frozen=True, slots=True)
class NetworkCard:
    index: int
    interfaces: int


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """An EC2 instance type. Memory in MiB, storage in GB, bandwidth in Mbit/s; zero or empty if missing."""

    name: str
    vcpus: int
    memory_mib: int
    architecture: str
    """amd64 or arm64; empty for an architecture that no node supports."""
    usage_classes: tuple[str, ...]
    hypervisor: str
    cpu_manufacturer: str
    clock_mhz: int
    ebs_mbps: int
    ebs_attachments: int
    """EBS volumes, with the root volume."""
    shares_attachments: bool
    """Whether network interfaces count against `ebs_attachments`."""
    network_mbps: int
    local_disk_gb: int
    nvme_gb: int
    """Size of the local disks if they are NVMe."""
    gpus: tuple[Device, ...]
    accelerators: tuple[Device, ...]
    neuron: tuple[Device, ...]
    cards: tuple[NetworkCard, ...]
    default_card: int
    ipv4_per_interface: int
    ipv6_per_interface: int
    ena: bool
    efa_interfaces: int
    encryption_in_transit: bool
    enclaves: bool
    strategies: tuple[str, ...]
    processor_features: tuple[str, ...]

    @property
    def default_interfaces(self) -> int:
        return next((card.interfaces for card in self.cards if card.index == self.default_card), 0)

    @classmethod
    def from_ec2(cls, raw: Mapping[str, Any]) -> "TypeInfo":
        network, processor = raw.get("NetworkInfo") or {}, raw.get("ProcessorInfo") or {}
        disks, ebs = raw.get("InstanceStorageInfo") or {}, raw.get("EbsInfo") or {}
        return cls(
            name=raw["InstanceType"],
            vcpus=(raw.get("VCpuInfo") or {}).get("DefaultVCpus", 0),
            memory_mib=(raw.get("MemoryInfo") or {}).get("SizeInMiB", 0),
            architecture=_architecture(processor.get("SupportedArchitectures", ())),
            usage_classes=tuple(raw.get("SupportedUsageClasses", ())),
            hypervisor=raw.get("Hypervisor") or "",
            cpu_manufacturer=_label_form(processor.get("Manufacturer", "")),
            clock_mhz=round((processor.get("SustainedClockSpeedInGhz") or 0) * 1000),
            ebs_mbps=_ebs_mbps(ebs),
            ebs_attachments=ebs.get("MaximumEbsAttachments", 0),
            shares_attachments=ebs.get("AttachmentLimitType") != "dedicated",
            network_mbps=network_mbps(raw["InstanceType"], network),
            local_disk_gb=disks.get("TotalSizeInGB", 0),
            nvme_gb=disks.get("TotalSizeInGB", 0) if disks.get("NvmeSupport") != "unsupported" else 0,
            gpus=_parse_devices((raw.get("GpuInfo") or {}).get("Gpus")),
            accelerators=_parse_devices((raw.get("InferenceAcceleratorInfo") or {}).get("Accelerators")),
            neuron=_parse_devices((raw.get("NeuronInfo") or {}).get("NeuronDevices")),
            cards=tuple(
                NetworkCard(c.get("NetworkCardIndex", 0), c.get("MaximumNetworkInterfaces", 0))
                for c in network.get("NetworkCards") or ()
            ),
            default_card=network.get("DefaultNetworkCardIndex", 0),
            ipv4_per_interface=network.get("Ipv4AddressesPerInterface", 0),
            ipv6_per_interface=network.get("Ipv6AddressesPerInterface", 0),
            ena=network.get("EnaSupport") in ("required", "supported"),
            efa_interfaces=(network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0),
            encryption_in_transit=bool(network.get("EncryptionInTransitSupported")),
            enclaves=raw.get("NitroEnclavesSupport") == "supported",
            strategies=tuple((raw.get("PlacementGroupInfo") or {}).get("SupportedStrategies", ())),
            processor_features=tuple(processor.get("SupportedFeatures", ())),
        )


def _architecture(supported: Any) -> str:
    return next((_ARCHITECTURES[name] for name in supported if name in _ARCHITECTURES), "")


def _ebs_mbps(ebs: Mapping[str, Any]) -> int:
    """Maximum EBS bandwidth. Zero unless the type is EBS-optimized by default, because otherwise it is not certain."""
    if ebs.get("EbsOptimizedSupport") != "default":
        return 0
    return int((ebs.get("EbsOptimizedInfo") or {}).get("MaximumBandwidthInMbps", 0))


def _parse_devices(found: Any) -> tuple[Device, ...]:
    return tuple(
        Device(
            name=_label_form(one.get("Name", "")),
            manufacturer=_label_form(one.get("Manufacturer", "")),
            count=one.get("Count", 0),
            memory_mib=(one.get("MemoryInfo") or {}).get("SizeInMiB", 0),
            cores=(one.get("CoreInfo") or {}).get("Count", 0),
        )
        for one in found or ()
    )


def _label_form(text: str) -> str:
    return text.lower().replace(" ", "-")


_CATEGORY: Final = re.compile(r"(^[a-z]+)(-[0-9]+tb)?([0-9]+).*\.")

TYPE_KEYS: Final = (labels.AWS_WELL_KNOWN | {labels.WINDOWS_BUILD}) - {labels.ZONE_ID}
"""Keys that nodes do not have if the type lacks them."""


def type_labels(info: TypeInfo, family: Family, region: str, zones: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """`zones`: zone to zone ID, which may be empty, of the zones that offer the type and have a subnet."""
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
    found.update(
        (key, (value,)) for key, value in (_name_labels(info) | _size_labels(info) | _accelerator_labels(info)).items()
    )
    return found


def _os(info: TypeInfo, family: Family) -> tuple[str, ...]:
    """Empty for Windows on arm64, because no Windows image supports arm64: then nothing fits the type."""
    return () if family.os == "windows" and info.architecture != "amd64" else (family.os,)


def _name_labels(info: TypeInfo) -> dict[str, str]:
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


def _size_labels(info: TypeInfo) -> dict[str, str]:
    sizes = {
        labels.INSTANCE_CPU: info.vcpus,
        labels.INSTANCE_MEMORY: info.memory_mib,
        labels.INSTANCE_CPU_CLOCK_SPEED: info.clock_mhz,
        labels.INSTANCE_EBS_BANDWIDTH: info.ebs_mbps,
        labels.INSTANCE_NETWORK_BANDWIDTH: info.network_mbps,
        labels.INSTANCE_LOCAL_NVME: info.nvme_gb,
    }
    return {key: str(size) for key, size in sizes.items() if size}


def _accelerator_labels(info: TypeInfo) -> dict[str, str]:
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
