"""Approximate prices, for GovCloud, isolated VPCs, and while the price list cannot be read.

Public on-demand prices of us-east-1, autumn of 2026 (docs/prices.md; `tools/aws_data.py` makes the table).
"""

import re
from typing import Final

from tenure.aws.instancetype.info import TypeInfo

_TABLE: Final = """
a1=0.051 c1=0.26 c3=0.105 c4=0.0995 c5=0.085 c5a=0.077 c5ad=0.086 c5d=0.096 c5n=0.108 c6a=0.0765 c6g=0.068
c6gd=0.0768 c6gn=0.0864 c6i=0.085 c6id=0.1008 c6in=0.1134 c7a=0.10264 c7g=0.0725 c7gd=0.09072 c7gn=0.1248
c7i=0.08925 c7i-flex=0.08479 c8a=0.10777 c8g=0.07976 c8gb=0.1185 c8gd=0.09798 c8gn=0.1185 c8i=0.09371
c8i-flex=0.08902 c8ib=0.13608 c8id=0.11088 c8in=0.13608 c8ine=0.1701 c9g=0.08694 c9gd=0.1068 cr1=0.21875 d2=0.345
d3=0.24973 d3en=0.26286 dl1=0.2731 f1=0.4125 f2=0.165 g2=0.1625 g3=0.1425 g3s=0.375 gr6f=0.13325 h1=0.117 i2=0.42625
i3=0.156 i3en=0.226 i4g=0.15444 i4i=0.1716 i7i=0.18876 i7ie=0.2599 i8g=0.1716 i8ge=0.2373 im4gn=0.1819
is4gen=0.28815 m1=0.175 m2=0.1225 m3=0.133 m4=0.1 m5=0.096 m5a=0.086 m5ad=0.103 m5d=0.113 m5dn=0.136 m5n=0.119
m5zn=0.16517 m6a=0.0864 m6g=0.077 m6gd=0.0904 m6i=0.096 m6id=0.11865 m6idn=0.15912 m6in=0.13923 m7a=0.11592
m7g=0.0816 m7gd=0.10679 m7i=0.1008 m7i-flex=0.09576 m8a=0.12172 m8azn=0.20646 m8g=0.08976 m8gb=0.1455 m8gd=0.11532
m8gn=0.1455 m8i=0.10584 m8i-flex=0.10055 m8ib=0.16708 m8id=0.13052 m8idb=0.19094 m8idn=0.19094 m8in=0.16708
m8ine=0.20885 m9g=0.09784 m9gd=0.1257 p2=0.45 p3=0.765 p3dn=0.65025 p4d=0.45745 p4de=0.57181 p5en=0.65933
p6-b200=1.1868 p6-b300=1.4835 r3=0.16625 r4=0.133 r5=0.126 r5a=0.113 r5ad=0.131 r5b=0.149 r5d=0.144 r5dn=0.167
r5n=0.149 r6a=0.1134 r6g=0.1008 r6gd=0.1152 r6i=0.126 r6id=0.1512 r6idn=0.19539 r6in=0.17433 r7a=0.15215 r7g=0.1071
r7gd=0.13608 r7i=0.1323 r7iz=0.186 r8a=0.15976 r8g=0.11782 r8gb=0.18218 r8gd=0.14696 r8gn=0.18218 r8i=0.13892
r8i-flex=0.13197 r8ib=0.2092 r8id=0.16632 r8idb=0.23447 r8idn=0.23447 r8in=0.2092 t1=0.16 t2=0.0928 t3=0.0832
t3a=0.0752 t4g=0.0672 trn1=0.33594 trn1n=0.38719 u-12tb1=0.4875 u-18tb1=0.73125 u-24tb1=0.975 u-3tb1=0.24375
u-9tb1=0.36563 u7i-12tb=0.28032 u7i-6tb=0.28031 u7i-8tb=0.37375 u7in-16tb=0.40285 u7in-24tb=0.60431
u7in-32tb=0.80577 vt1=0.10833 x1=0.20841 x1e=0.417 x2gd=0.167 x2idn=0.20841 x2iedn=0.41681 x2iezn=0.417 x8g=0.1954
z1d=0.186
"""
_LARGES: Final = {family: float(price) for family, _, price in (one.partition("=") for one in _TABLE.split())}
"""Family to the price of its large; the other sizes cost in proportion."""
_SIZES: Final = {"nano": 0.0625, "micro": 0.125, "small": 0.25, "medium": 0.5, "large": 1.0, "xlarge": 2.0}
_MULTIPLE: Final = re.compile(r"(\d+)xlarge")
_CORES_OF_A_LARGE: Final = 2
# For all other types: a core, a GiB, a GB of local disk; then each device, by its name or by its memory.
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
# GovCloud costs a fifth more; prices in China are in yuan.
_REGIONS: Final = {"us-gov-": 1.2, "cn-": 10.0}


def estimate_price(info: TypeInfo, region: str = "") -> float:
    """An hour in US dollars (in China: yuan)."""
    share = next((factor for prefix, factor in _REGIONS.items() if region.startswith(prefix)), 1.0)
    return round((_by_family(info) or _by_parts(info)) * share, 5)


def larges_in(size: str) -> float:
    """How many larges cost as much as one of this size; zero for metal, whose name does not tell."""
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
