"""How many equal pods a machine holds, and the cheapest machines for a number of them. `buying.py` chooses by it."""

import numpy as np

from scheduling.typetable import Amounts, Prices


def exact_mix(prices: Prices, fits: Amounts, count: int, cap: int) -> int:
    """The largest node of the cheapest way to hold all of equal pods; by dynamic programming over their number."""
    fits = np.minimum(np.minimum(fits, cap), count)
    best: dict[int, int] = {}
    for row in np.lexsort((np.arange(len(fits)), prices)):
        best.setdefault(int(fits[row]), int(row))
    cost, last = [0.0], [0]
    for pods in range(1, count + 1):
        ways = ((float(prices[row]) + cost[max(0, pods - held)], -held) for held, row in best.items())
        paid, held = min(ways)
        cost.append(paid)
        last.append(-held)
    pods, largest = count, 0
    while pods > 0:
        largest = max(largest, last[pods])
        pods -= last[pods]
    return best[largest]


def fits_of(room: Amounts, vector: Amounts) -> Amounts:
    asked = np.flatnonzero(vector)
    return np.asarray((room[:, asked] // vector[asked]).min(axis=1), dtype=np.int64) if len(asked) else room[:, 0]


def fit_of(room: Amounts, vector: Amounts) -> int:
    asked = np.flatnonzero(vector)
    return int((room[asked] // vector[asked]).min()) if len(asked) else 1 << 30
