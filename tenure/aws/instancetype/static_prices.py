"""Approximate prices, for GovCloud, isolated VPCs, and while the price list cannot be read.

Based on public on-demand prices of us-east-1 in autumn 2026 (docs/provisioning/prices.md).
`tools/aws_data.py` generates `prices_per_large.txt`.
"""

import re
from importlib.resources import files
from typing import Final

from tenure.aws.instancetype.info import TypeInfo

_TABLE: Final = files(__package__).joinpath("prices_per_large.txt").read_text()
_LARGES: Final = {family: float(price) for family, _, price in (one.partition("=") for one in _TABLE.split())}
"""Price of the size large by family; the prices of other sizes are proportional."""
_SIZES: Final = {"nano": 0.0625, "micro": 0.125, "small": 0.25, "medium": 0.5, "large": 1.0, "xlarge": 2.0}
_MULTIPLE: Final = re.compile(r"(\d+)xlarge")
_CORES_OF_A_LARGE: Final = 2
# For other families: prices per core, per GiB of memory, per GB of local disk, and per device by name or by memory.
_PER_CORE: Final = 0.03
_PER_GIB: Final = 0.004
_PER_DISK_GB: Final = 0.00008
_DEVICES: Final = {
    "t4": 0.41,
    "t4g": 0.19,
    "l4": 0.54,
    "a10g": 0.85,
    "l40s": 2.1,
    "rtx-pro-server-6000": 2.5,
    "v100": 3.1,
    "a100": 2.1,
    "h100": 5.0,
    "h200": 5.9,
    "b200": 12.2,
    "b300": 14.7,
    "inferentia": 0.07,
    "inferentia2": 0.42,
    "trainium": 0.95,
}
_PER_DEVICE_GIB: Final = 0.05
_WINDOWS_LICENSE_PER_VCPU: Final = 0.046
"""US dollars per hour: the difference between AWS's Windows and Linux prices, except for burstable types."""
# GovCloud is about 20 % more expensive; prices in China are in yuan.
_REGIONS: Final = {"us-gov-": 1.2, "cn-": 10.0}


def estimate_price(info: TypeInfo, region: str = "") -> float:
    """US dollars (in China: yuan) per hour."""
    return round((_by_family(info) or _by_parts(info)) * _regional_factor(region), 5)


def estimate_windows_license(info: TypeInfo, region: str = "") -> float:
    """US dollars (in China: yuan) per hour, which a Windows instance costs in addition."""
    return round(info.vcpus * _WINDOWS_LICENSE_PER_VCPU * _regional_factor(region), 5)


def _regional_factor(region: str) -> float:
    return next((factor for prefix, factor in _REGIONS.items() if region.startswith(prefix)), 1.0)


def larges_in(size: str) -> float:
    """Price of the size as a multiple of large; zero for metal, whose name does not show its size."""
    multiple = _MULTIPLE.fullmatch(size)
    return 2.0 * int(multiple[1]) if multiple else _SIZES.get(size, 0.0)


def _by_family(info: TypeInfo) -> float:
    family, _, size = info.name.partition(".")
    price = _LARGES.get(family, 0.0)
    return price * (larges_in(size) or info.vcpus / _CORES_OF_A_LARGE)


def _by_parts(info: TypeInfo) -> float:
    machine = info.vcpus * _PER_CORE + info.memory_mib / 1024 * _PER_GIB + info.local_disk_gb * _PER_DISK_GB
    devices = (*info.gpus, *(info.neuron or info.accelerators))
    return machine + sum(one.count * _DEVICES.get(one.name, one.memory_mib / 1024 * _PER_DEVICE_GIB) for one in devices)
