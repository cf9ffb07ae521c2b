"""Branch interfaces (`vpc.amazonaws.com/pod-eni`) and baseline bandwidth in Mbit/s (`instance-network-bandwidth`).

`tools/aws_data.py` makes the table of branch interfaces; a type that is not in it cannot be a trunk. EC2's API gives
the bandwidth of each card. Karpenter took it from EC2's user guide, which counts one card of several for some types
and has no number for old ones; selectors that work there must work here, so those differ.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

_TABLE: Final = """
a1: large=9 medium=10 xlarge=18 2xlarge=38 4xlarge=54 metal=54
c5 c5d: large=9 xlarge=18 2xlarge=38 12xlarge=54 4xlarge=54 9xlarge=54 18xlarge=107 24xlarge=107 metal=107
c5a c5ad m5a m5ad r5a r5ad: large=9 xlarge=18 2xlarge=38 12xlarge=54 4xlarge=54 8xlarge=54 16xlarge=107 \
  24xlarge=107
c5n: large=9 xlarge=18 2xlarge=38 4xlarge=54 9xlarge=54 18xlarge=107 metal=107
c6a m6a r6a: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 16xlarge=107 24xlarge=107 32xlarge=107 \
  48xlarge=107 metal=107 12xlarge=114
c6g c6gd c7g c7gd c7gn m6g m6gd m7g m7gd r6g r6gd r7g r7gd: medium=4 large=9 xlarge=18 2xlarge=38 12xlarge=54 \
  4xlarge=54 8xlarge=54 16xlarge=107 metal=107
c6gn: medium=4 large=9 xlarge=18 2xlarge=38 12xlarge=54 4xlarge=54 8xlarge=54 16xlarge=107
c6i c6id m6i m6id r6i r6id: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 16xlarge=107 24xlarge=107 \
  32xlarge=107 metal=107 12xlarge=114
c6in m6idn m6in r6idn r6in: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 32xlarge=106 metal=106 \
  16xlarge=107 24xlarge=107 12xlarge=114
c7a m7a r7a: medium=4 large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 16xlarge=107 24xlarge=107 \
  32xlarge=107 48xlarge=107 metal-48xl=107 12xlarge=114
c7g-flex m7g-flex: medium=1 large=3 xlarge=8 2xlarge=18 4xlarge=34 8xlarge=54
c7i-flex m7i-flex: large=3 xlarge=8 2xlarge=18 4xlarge=34 8xlarge=54 16xlarge=107 12xlarge=114
c7i: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 16xlarge=107 24xlarge=107 32xlarge=107 48xlarge=107 \
  metal-24xl=107 metal-48xl=107 12xlarge=114
c8a m8a r8a: medium=4 large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=82 48xlarge=98 metal-48xl=98 \
  16xlarge=106 24xlarge=106 metal-24xl=106 12xlarge=110
c8g c8gd m8g m8gd r8g r8gd x8g: medium=4 large=9 xlarge=18 2xlarge=38 12xlarge=54 4xlarge=54 8xlarge=54 \
  16xlarge=107 24xlarge=107 48xlarge=107 metal-24xl=107 metal-48xl=107
c8g-flex m8g-flex: medium=1 large=3 xlarge=8 2xlarge=18 4xlarge=34 16xlarge=47 12xlarge=54 8xlarge=54
c8gb c8gn m8gb m8gn r8gb r8gn: medium=4 large=9 xlarge=18 2xlarge=38 12xlarge=50 8xlarge=52 4xlarge=54 \
  24xlarge=98 48xlarge=98 metal-24xl=98 metal-48xl=98 16xlarge=106
c8i c8id m8i m8id r8i r8id: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=82 32xlarge=98 48xlarge=98 \
  96xlarge=98 metal-48xl=98 metal-96xl=98 16xlarge=106 24xlarge=106 12xlarge=110
c8i-flex m8i-flex r8i-flex: large=3 xlarge=8 2xlarge=18 4xlarge=34 8xlarge=52 16xlarge=106 12xlarge=110
c8ib c8in m8ib m8idb m8idn m8in r8ib r8idb r8idn r8in: large=8 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 \
  48xlarge=98 96xlarge=98 metal-48xl=98 metal-96xl=98 16xlarge=106 24xlarge=106 32xlarge=106 12xlarge=110
c8ine m8ine: large=8 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 12xlarge=110
c9g c9gd m9g m9gd r9g r9gd: medium=4 large=9 xlarge=18 2xlarge=38 12xlarge=50 8xlarge=52 4xlarge=54 \
  24xlarge=98 48xlarge=98 metal-48xl=98 16xlarge=106
d3: xlarge=42 2xlarge=92 4xlarge=118 8xlarge=119
d3en: xlarge=24 2xlarge=58 4xlarge=118 6xlarge=118 8xlarge=118 12xlarge=119
dl1 p4d p4de: 24xlarge=62
dl2q p3dn: 24xlarge=107
f2: 6xlarge=84 48xlarge=107 12xlarge=114
g4ad: 16xlarge=6 8xlarge=10 4xlarge=11 2xlarge=12 xlarge=12
g4dn: 2xlarge=39 xlarge=39 12xlarge=54 8xlarge=58 4xlarge=59 metal=107 16xlarge=118
g5: xlarge=4 2xlarge=17 4xlarge=34 8xlarge=84 12xlarge=107 24xlarge=107 16xlarge=114 48xlarge=115
g5g: xlarge=18 2xlarge=38 4xlarge=54 8xlarge=54 16xlarge=107 metal=107
g6: xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 16xlarge=107 24xlarge=107 48xlarge=107 12xlarge=114
g6e: xlarge=18 2xlarge=38 4xlarge=54 48xlarge=82 8xlarge=84 24xlarge=102 16xlarge=107 12xlarge=112
g6f: large=10 xlarge=18 2xlarge=38 4xlarge=54
g7: 2xlarge=38 4xlarge=54 8xlarge=82 24xlarge=98 48xlarge=98 12xlarge=110
g7e: 12xlarge=120 24xlarge=120 2xlarge=120 48xlarge=120 4xlarge=120 8xlarge=120
gr6: 4xlarge=54 8xlarge=84
gr6f: 4xlarge=54
hpc7g: 16xlarge=118 4xlarge=118 8xlarge=118
i3: metal=120
i3en: large=5 xlarge=12 2xlarge=28 3xlarge=38 12xlarge=54 6xlarge=54 24xlarge=107 metal=107
i4g im4gn: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=54 16xlarge=107
i4i: xlarge=6 large=9 2xlarge=26 4xlarge=52 24xlarge=105 12xlarge=112 8xlarge=112 16xlarge=120 32xlarge=120 \
  metal=120
i7i: large=9 xlarge=18 2xlarge=38 4xlarge=54 12xlarge=84 8xlarge=84 16xlarge=107 24xlarge=107 48xlarge=107 \
  metal-24xl=107 metal-48xl=107
i7ie: large=19 2xlarge=27 3xlarge=27 xlarge=27 12xlarge=54 6xlarge=54 18xlarge=107 24xlarge=107 48xlarge=107 \
  metal-24xl=107 metal-48xl=107
i8g: large=9 xlarge=18 2xlarge=38 12xlarge=54 4xlarge=54 8xlarge=54 16xlarge=107 24xlarge=107 48xlarge=107 \
  metal-24xl=107 metal-48xl=107
i8ge: large=19 3xlarge=25 2xlarge=27 xlarge=27 12xlarge=50 6xlarge=52 48xlarge=98 metal-48xl=98 18xlarge=106 \
  24xlarge=106 metal-24xl=106
inf1: 2xlarge=38 xlarge=38 6xlarge=54 24xlarge=111
inf2: xlarge=18 8xlarge=84 24xlarge=107 48xlarge=107
is4gen: medium=4 large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=54
m5 r5: large=9 xlarge=18 2xlarge=38 12xlarge=54 4xlarge=54 8xlarge=54 16xlarge=107 24xlarge=107 metal=120
m5d m5dn m5n r5b r5d r5dn r5n: large=9 xlarge=18 2xlarge=38 12xlarge=54 4xlarge=54 8xlarge=54 16xlarge=107 \
  24xlarge=107 metal=107
m5zn: large=13 xlarge=29 2xlarge=62 3xlarge=92 12xlarge=107 metal=107 6xlarge=114
m7i r7i: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 16xlarge=107 24xlarge=107 48xlarge=107 \
  metal-24xl=107 metal-48xl=107 12xlarge=114
m8azn: medium=3 large=8 xlarge=18 3xlarge=34 6xlarge=54 12xlarge=106 24xlarge=106 metal-12xl=106 \
  metal-24xl=106
mac-m3ultra mac-m4 mac-m4max mac-m4pro mac1 mac2 mac2-m1ultra mac2-m2 mac2-m2pro: metal=6
p5: 4xlarge=58 48xlarge=120
p5e p5en p6-b200 p6-b300: 48xlarge=120
r7iz: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=84 16xlarge=107 32xlarge=107 metal-16xl=107 \
  metal-32xl=107 12xlarge=114
trn1: 2xlarge=17 32xlarge=82
trn1n: 32xlarge=120
u-3tb1: 56xlarge=6
u7i-12tb: 224xlarge=107
u7i-6tb u7i-8tb: 112xlarge=107
u7in-16tb u7in-24tb u7in-32tb: 224xlarge=106
vt1: 3xlarge=38 6xlarge=54 24xlarge=107
x2gd: large=9 medium=10 xlarge=18 2xlarge=38 12xlarge=54 4xlarge=54 8xlarge=54 16xlarge=107 metal=107
x2idn: 16xlarge=107 24xlarge=107 32xlarge=107 metal=107
x2iedn: xlarge=11 2xlarge=27 4xlarge=54 16xlarge=107 24xlarge=107 32xlarge=107 metal=107 8xlarge=114
x2iezn: 2xlarge=62 12xlarge=107 metal=107 4xlarge=114 6xlarge=114 8xlarge=114
x8aedz: large=8 xlarge=18 3xlarge=34 6xlarge=54 12xlarge=106 24xlarge=106 metal-12xl=106 metal-24xl=106
x8i: large=9 xlarge=18 2xlarge=38 4xlarge=54 8xlarge=82 32xlarge=98 48xlarge=98 64xlarge=98 96xlarge=98 \
  metal-48xl=98 metal-96xl=98 16xlarge=106 24xlarge=106 12xlarge=110
z1d: large=13 xlarge=28 3xlarge=54 6xlarge=54 2xlarge=58 12xlarge=107 metal=107
"""
"""One line for the families that are alike: their names, a colon, and the count of each size."""


def branch_interfaces(instance_type: str) -> int:
    """Zero where there is no trunk."""
    return _parse_counts().get(instance_type, 0)


@cache
def _parse_counts() -> dict[str, int]:
    found = {}
    for line in _TABLE.strip().splitlines():
        families, _, sizes = line.partition(":")
        for size, _, count in (one.partition("=") for one in sizes.split()):
            found.update({f"{family}.{size}": int(count) for family in families.split()})
    return found


_TWO_DECIMALS_FROM: Final = 20_000
"""Mbit/s. From here on the guide gives Gbit/s with two decimals, cut: 33.33 for a third of a hundred."""
_GUIDE: Final = {
    3_120: "vt1.3xlarge",
    10_000: "c3.8xlarge h1.8xlarge i3.8xlarge r3.8xlarge r4.8xlarge",
    60_000: "g7.2xlarge g7.4xlarge",
    80_000: "g7.8xlarge",
    90_000: "i8g.metal-48xl",
    100_000: "i7ie.48xlarge i7ie.metal-48xl",
    180_000: "i8ge.48xlarge i8ge.metal-48xl",
    200_000: "c6in.32xlarge c6in.metal m6idn.32xlarge m6idn.metal m6in.32xlarge m6in.metal r6idn.32xlarge "
    "r6idn.metal r6in.32xlarge r6in.metal hpc6id.32xlarge g6e.24xlarge trn2.3xlarge",
    300_000: "hpc8a.96xlarge",
    400_000: "g6e.48xlarge",
    3_200_000: "p6-b200.48xlarge",
    6_400_000: "p6-b300.48xlarge",
}
_BY_NAME: Final = {name: mbps for mbps, names in _GUIDE.items() for name in names.split()}


def network_mbps(instance_type: str, network: Mapping[str, Any]) -> int:
    """From `NetworkInfo` of DescribeInstanceTypes. Zero where only words such as "Moderate" are known."""
    if not any(character.isdigit() for character in network.get("NetworkPerformance", "")):
        return 0
    if instance_type in _BY_NAME:
        return _BY_NAME[instance_type]
    cards = network.get("NetworkCards") or []
    mbps = round(sum(float(card.get("BaselineBandwidthInGbps", 0)) for card in cards) * 1000)
    return mbps - mbps % 10 if mbps >= _TWO_DECIMALS_FROM else mbps
