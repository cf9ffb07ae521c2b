"""Print the data files of `tenure/aws/instancetype`.

Branch interfaces per instance type, which EC2's API does not return. AWS publishes them in the Go module
github.com/aws/amazon-vpc-resource-controller-k8s:

    go mod download -json github.com/aws/amazon-vpc-resource-controller-k8s@latest
    python -m tools.aws_data DIR/pkg/aws/vpc/limits.go > tenure/aws/instancetype/branch_interfaces.txt

The price of a "large" of each family. prices.json maps instance types to US dollars per hour (on-demand, Linux,
us-east-1) from the AWS Price List. A family whose prices are not proportional to its sizes is omitted; the estimation
formula then applies to it.

    python -m tools.aws_data prices.json > tenure/aws/instancetype/prices_per_large.txt
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


def branches_of(published: str) -> dict[str, int]:
    """Branch interfaces by instance type, for types that support trunking."""
    found = {}
    for entry in _ENTRY.finditer(published):
        branches = _BRANCHES.search(entry["body"])
        if branches and int(branches[1]) and _TRUNKS.search(entry["body"]):
            found[entry["name"]] = int(branches[1])
    return found


def format_branches(counts: Mapping[str, int]) -> str:
    """One line for families with equal counts: their names, a colon, and the count of each size."""
    sizes = defaultdict[str, dict[str, int]](dict)
    for name, count in counts.items():
        family, _, size = name.partition(".")
        sizes[family][size] = count
    alike = defaultdict[str, list[str]](list)
    for family, found in sizes.items():
        ordered = sorted(found.items(), key=lambda one: (one[1], one[0]))
        alike[" ".join(f"{size}={count}" for size, count in ordered)].append(family)
    return "".join(sorted(f"{' '.join(sorted(families))}: {text}\n" for text, families in alike.items()))


_TOLERANCE: Final = 0.02


def prices_per_large(prices: Mapping[str, float]) -> dict[str, float]:
    """US dollars per hour of the large size by family, rounded to 5 decimals."""
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


def format_prices(prices: Mapping[str, float]) -> str:
    """Lines of `family=price`."""
    entries = (f"{family}={price:g}" for family, price in prices_per_large(prices).items())
    return "\n".join(textwrap.wrap(" ".join(entries), width=116, break_long_words=False, break_on_hyphens=False)) + "\n"


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text()
    is_prices = sys.argv[1].endswith(".json")
    sys.stdout.write(format_prices(json.loads(text)) if is_prices else format_branches(branches_of(text)))
