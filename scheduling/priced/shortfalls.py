"""Why nothing can be bought, in words: what is missing, and how near the nearest comes. For `buying.py`."""

from collections.abc import Sequence

import numpy as np

from model.quantity import format_amount
from model.resources import NODES
from scheduling.pools import Offer, Refusal
from scheduling.typetable import Amounts, Indices


def too_small(resources: Sequence[str], room: Amounts, vector: Amounts) -> Refusal:
    """Names the first resource that no type has enough of; else that none has enough of all together."""
    most = room.max(axis=0)
    for number in map(int, np.flatnonzero(vector > most)):
        key = resources[number]
        asked, found = format_amount(key, int(vector[number])), format_amount(key, max(0, int(most[number])))
        if not most[number]:
            return Refusal(f"no instance type has {key}")
        return Refusal(f"needs {asked} {key}; the largest instance type allowed has {found} beside its DaemonSets")
    asked = ", ".join(f"{format_amount(key, int(n))} {key}" for key, n in zip(resources, vector, strict=True) if n)
    return Refusal(f"no single instance type allowed has {asked} together beside its DaemonSets")


def over_limit(offer: Offer, fitting: Indices) -> Refusal:
    for key, limit in offer.budget.limits.items():
        left = offer.budget.left(key) or 0
        column = offer.table.columns.get(key)
        least = 1 if column is None else int(offer.table.capacity[fitting, column].min())
        if least > left:
            if key == NODES:
                return Refusal(f"limit nodes {limit} is reached")
            shown = [format_amount(key, amount) for amount in (limit, max(left, 0), least)]
            return Refusal(
                f"limit {key} {shown[0]}: {shown[1]} left, the smallest instance type that fits has {shown[2]}"
            )
    return Refusal("the limits together leave no instance type that fits")
