"""Branch interfaces (`vpc.amazonaws.com/pod-eni`) and baseline bandwidth in Mbit/s (`instance-network-bandwidth`).

`tools/aws_data.py` generates `branch_interfaces.txt`; missing types do not support trunk interfaces. EC2's API returns
the bandwidth per card. Karpenter has it from EC2's user guide, which counts only one of several cards for some types
and has no number for old types. Those types use the guide's values, so that the same selectors work.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final


def branch_interfaces(instance_type: str) -> int:
    """Number of branch interfaces; zero without support for trunk interfaces."""
    return _parse_counts().get(instance_type, 0)


@cache
def _parse_counts() -> dict[str, int]:
    """Parse lines of the form `family family: size=count size=count`."""
    found = {}
    for line in files(__package__).joinpath("branch_interfaces.txt").read_text().splitlines():
        families, _, sizes = line.partition(":")
        for size, _, count in (one.partition("=") for one in sizes.split()):
            found.update({f"{family}.{size}": int(count) for family in families.split()})
    return found


_TWO_DECIMALS_FROM: Final = 20_000
"""Mbit/s. From here on the guide has Gbit/s, truncated to two decimals: 33.33 for a third of a hundred."""
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
    """`network`: `NetworkInfo` of DescribeInstanceTypes. Zero if only a description such as "Moderate" is known."""
    if not any(character.isdigit() for character in network.get("NetworkPerformance", "")):
        return 0
    if instance_type in _BY_NAME:
        return _BY_NAME[instance_type]
    cards = network.get("NetworkCards") or []
    mbps = round(sum(float(card.get("BaselineBandwidthInGbps", 0)) for card in cards) * 1000)
    return mbps - mbps % 10 if mbps >= _TWO_DECIMALS_FROM else mbps
