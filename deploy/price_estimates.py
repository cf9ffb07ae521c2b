"""Prints the table of `aws/price_estimates.py`: what a "large" of each family costs, for sizes cost in proportion.

Reads a JSON object of instance type to dollars an hour, on-demand, Linux, us-east-1, as the AWS Price List gives it:

    python -m deploy.price_estimates prices.json

A family is left out when its sizes are not in proportion, as with GPUs: for those the formula stands.
"""

import json
import sys
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final

from aws.price_estimates import larges_in

_TOLERANCE: Final = 0.02


def larges(prices: Mapping[str, float]) -> dict[str, float]:
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


def table(prices: Mapping[str, float]) -> str:
    """Lines of `family=price`."""
    words = (f"{family}={price:g}" for family, price in larges(prices).items())
    return "\n".join(textwrap.wrap(" ".join(words), width=116, break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    sys.stdout.write(table(json.loads(Path(sys.argv[1]).read_text())) + "\n")
