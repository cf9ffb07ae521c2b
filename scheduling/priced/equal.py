"""Equal pods: how many a machine holds, and the cheapest nodes for those that nobody joins, exactly."""

import numpy as np

from scheduling.typetable import Amounts, Prices


def exact_mix(prices: Prices, fits: Amounts, count: int) -> int:
    """The largest node of the cheapest way to hold all of equal pods; by dynamic programming over their number."""
    fits = np.minimum(fits, count)
    ways = _worthwhile(prices, fits)
    if len(ways) == 1:
        return ways[0][2]
    best = {held: row for held, _, row in ways}
    cost, last = [0.0], [0]
    for pods in range(1, count + 1):
        paid, held = min([(price + cost[max(0, pods - held)], -held) for held, price, _ in ways])
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


def _worthwhile(prices: Prices, fits: Amounts) -> list[tuple[int, float, int]]:
    """How many pods, at which price, in which row: only those that nothing as cheap holds as many as."""
    found: list[tuple[int, float, int]] = []
    for row in np.lexsort((np.arange(len(fits)), prices, -fits)):
        if not found or prices[row] < found[-1][1]:
            found.append((int(fits[row]), float(prices[row]), int(row)))
    return found
