"""Writes `tenure/aws/instancetype/network_limits.py`, the table of branch interfaces per instance type, from AWS's
published limits.

EC2's API does not tell them. AWS publishes them in the Go module github.com/aws/amazon-vpc-resource-controller-k8s:

    go mod download -json github.com/aws/amazon-vpc-resource-controller-k8s@latest
    python -m tools.aws_data DIR/pkg/aws/vpc/limits.go > tenure/aws/instancetype/network_limits.py

Prints the table of `tenure/aws/instancetype/static_prices.py`: what a "large" of each family costs, for sizes cost
in proportion.

Reads a JSON object of instance type to dollars an hour, on-demand, Linux, us-east-1, as the AWS Price List gives it:

    python -m tools.aws_data prices.json

A family is left out when its sizes are not in proportion, as with GPUs: for those the formula stands.
"""

import json
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final

from tenure.aws.instancetype.static_prices import larges_in

_ENTRY: Final = re.compile(r'^\t"(?P<name>[^"]+)": \{\n(?P<body>.*?)^\t\},', re.MULTILINE | re.DOTALL)
_TRUNKS: Final = re.compile(r"IsTrunkingCompatible:\s+true")
_BRANCHES: Final = re.compile(r"BranchInterface:\s+(\d+)")
_HEADER: Final = '''"""Branch interfaces that an instance type's trunk takes: what `vpc.amazonaws.com/pod-eni` counts.

Made by `tools/aws_data.py` from the limits that AWS publishes for its VPC resource controller; edit it there.
A type that is not here cannot be a trunk, or is too new to be known.
"""

from functools import cache
from typing import Final

_TABLE: Final = """
'''
_FOOTER: Final = '''"""
"""One line for the families that are alike: their names, a colon, and the count of each size."""


def branch_interfaces(instance_type: str) -> int:
    """Zero where there is no trunk."""
    return _counts().get(instance_type, 0)


@cache
def _counts() -> dict[str, int]:
    found = {}
    for line in _TABLE.strip().splitlines():
        families, _, sizes = line.partition(":")
        for size, _, count in (one.partition("=") for one in sizes.split()):
            found.update({f"{family}.{size}": int(count) for family in families.split()})
    return found
'''


def branches_of(published: str) -> dict[str, int]:
    """Instance type to branch interfaces, of those that can be trunks."""
    found = {}
    for entry in _ENTRY.finditer(published):
        branches = _BRANCHES.search(entry["body"])
        if branches and int(branches[1]) and _TRUNKS.search(entry["body"]):
            found[entry["name"]] = int(branches[1])
    return found


def module_of(counts: dict[str, int]) -> str:
    """The Python module that holds them."""
    sizes = defaultdict[str, dict[str, int]](dict)
    for name, count in counts.items():
        family, _, size = name.partition(".")
        sizes[family][size] = count
    alike = defaultdict[str, list[str]](list)
    for family, found in sizes.items():
        ordered = sorted(found.items(), key=lambda one: (one[1], one[0]))
        alike[" ".join(f"{size}={count}" for size, count in ordered)].append(family)
    lines = sorted(f"{' '.join(sorted(families))}: {text}" for text, families in alike.items())
    return _HEADER + "\n".join(_wrap_line(line) for line in lines) + "\n" + _FOOTER


def _wrap_line(line: str) -> str:
    """Long lines go on after a backslash."""
    return " \\\n  ".join(textwrap.wrap(line, width=110, break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    sys.stdout.write(module_of(branches_of(Path(sys.argv[1]).read_text())))


_TOLERANCE: Final = 0.02


def prices_per_large(prices: Mapping[str, float]) -> dict[str, float]:
    """Family to the price of its large, rounded to a hundredth of a cent."""
    found = defaultdict[str, list[float]](list)
    for name, price in prices.items():
        family, _, size = name.partition(".")
        count = larges_in(size)
        if count:
            found[family].append(price / count)
    return {
        family: round(middle, 5)
        for family, each in sorted(found.items())
        for middle in (median(each),)
        if all(abs(price / middle - 1) <= _TOLERANCE for price in each)
    }


def format_table(prices: Mapping[str, float]) -> str:
    """Lines of `family=price`."""
    entries = (f"{family}={price:g}" for family, price in prices_per_large(prices).items())
    return "\n".join(textwrap.wrap(" ".join(entries), width=116, break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    sys.stdout.write(format_table(json.loads(Path(sys.argv[1]).read_text())) + "\n")
