"""The cheapest mix of nodes filled with whole pods, by column generation.

A pattern is an instance type with so many pods of each size. The linear program over the known patterns gives the
price of a pod of each size. Each node whose pods are worth more than it costs is a new pattern, until there is none
(Gilmore and Gomory's method for cutting stock).
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.packing.shadow_prices import solve_covering, undominated_rows


def pods_per_row(headroom: Amounts, vector: Amounts) -> Amounts:
    requested = np.flatnonzero(vector)
    return (
        np.asarray((headroom[:, requested] // vector[requested]).min(axis=1), dtype=np.int64)
        if len(requested)
        else headroom[:, 0]
    )


def pods_in_headroom(headroom: Amounts, vector: Amounts) -> int:
    requested = np.flatnonzero(vector)
    return int((headroom[requested] // vector[requested]).min()) if len(requested) else 1 << 30


MAX_SIZES: Final = 48
"""Column generation with more sizes takes too long."""
_MAX_ROUNDS: Final = 40
_MAX_LATER_ROUNDS: Final = 16
"""When the patterns of a mix for more pods are known."""
_PATTERNS_PER_ROUND: Final = 12
_TINY: Final = 1e-9
_STEP_SHARE: Final = 0.1
"""Of the room left on a row, filled with pods of one size before the next size is chosen."""
_MIN_NODES: Final = 1e-6
_FINEST_STEP: Final = 1 / 8
"""In doublings of an amount; pods within a step are of one group."""
_STEP_GROWTH: Final = 1.25
_MAX_COST_RATIO: Final = 0.999
"""No pattern that is worth adding costs more than this part of its pods' worth."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """Pod requests: one row per size, with its number of pods and the maximum per node."""

    vectors: Amounts
    counts: Amounts
    caps: Amounts


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """So many `nodes` of the type in `row`, with so many pods of each size on each."""

    row: int
    pods: Amounts
    nodes: float


@dataclass(slots=True, eq=False)
class PatternSolution:
    """`worth` in US dollars an hour for one pod of each size, `node_price` for having one more node at all."""

    sizes: Sizes
    size_prices: Prices
    node_price: float = 0.0
    counts: Prices = field(default_factory=lambda: np.zeros(0))
    """How many of each row of machines the mix has."""
    patterns: list[Pattern] = field(default_factory=list)
    """Those in use, most nodes first."""
    known_patterns: tuple[Indices, Amounts] | None = None
    """Rows and pods of all patterns, to start from when fewer pods remain."""

    def value_headroom(self, headroom: Amounts, remaining: Amounts, first: int, most: int, *, forced: bool) -> Prices:
        """The value of each row: up to `most` pods of the size `first`, then the most valuable of the `remaining`."""
        vector, caps = self.sizes.vectors[first], np.minimum(remaining, self.sizes.caps)
        counts = np.minimum(np.maximum(pods_per_row(headroom, vector), 0), most)
        caps[first] = 0
        others = fill_rows(self.sizes, headroom - counts[:, None] * vector, caps, self.size_prices)
        values = others @ self.size_prices + counts * self.size_prices[first]
        return np.asarray(values + (self.node_price if forced else 0.0), dtype=np.float64)


def solve_patterns(
    headroom: Amounts,
    prices: Prices,
    sizes: Sizes,
    *,
    nodes: int = 0,
    known_patterns: tuple[Indices, Amounts] | None = None,
) -> PatternSolution | None:
    """The mix has at least so many `nodes`. None when some size fits no row, or the solver has no answer."""
    cost_effective = undominated_types(headroom, prices)
    headroom, prices, every = headroom[cost_effective], prices[cost_effective], len(headroom)
    initial = known_patterns or _initial_patterns(headroom, prices, sizes)
    if initial is None:
        return None
    rows, patterns = initial
    for _ in range(_MAX_LATER_ROUNDS if known_patterns else _MAX_ROUNDS):
        solution = _solve_master(prices, rows, patterns, sizes, nodes)
        if solution is None:
            return None
        used, size_prices, node_price = solution
        fresh_rows, fresh = _find_improving_patterns(headroom, prices, sizes, size_prices, node_price)
        if not len(fresh_rows):
            break
        rows, patterns = np.concatenate((rows, fresh_rows)), np.concatenate((patterns, fresh))
    counts, used_rows = np.zeros(every), cost_effective[rows[: len(used)]]
    np.add.at(counts, used_rows, used)
    order = [one for one in np.argsort(-used, kind="stable") if used[one] > _MIN_NODES]
    found = [Pattern(int(used_rows[one]), patterns[one], float(used[one])) for one in order]
    return PatternSolution(sizes, size_prices, node_price, counts, found, (rows, patterns))


def _initial_patterns(headroom: Amounts, prices: Prices, sizes: Sizes) -> tuple[Indices, Amounts] | None:
    """Each size by itself, on the row that holds it cheapest."""
    rows, patterns = [], np.zeros((len(sizes.counts), len(sizes.counts)), dtype=np.int64)
    for number, vector in enumerate(sizes.vectors):
        fits = np.minimum(np.maximum(pods_per_row(headroom, vector), 0), min(sizes.caps[number], sizes.counts[number]))
        if not fits.any():
            return None
        row = int(np.argmin(np.where(fits > 0, prices / np.maximum(fits, 1), np.inf)))
        patterns[number, number] = fits[row]
        rows.append(row)
    return np.array(rows, dtype=np.intp), patterns


def _solve_master(
    prices: Prices, rows: Indices, patterns: Amounts, sizes: Sizes, nodes: int
) -> tuple[Prices, Prices, float] | None:
    """How often each pattern is used, and the duals."""
    scale = np.maximum(sizes.counts, 1).astype(np.float64)
    pods = np.minimum(patterns, sizes.counts)
    matrix = np.column_stack((pods / scale, np.full(len(rows), 1.0 / max(nodes, 1))))
    solved = solve_covering(prices[rows], matrix, np.append(sizes.counts > 0, nodes > 0).astype(np.float64))
    if solved is None:
        return None
    used, duals = solved
    return used, np.maximum(duals[:-1], 0) / scale, max(0.0, float(duals[-1])) / max(nodes, 1)


def _find_improving_patterns(
    headroom: Amounts, prices: Prices, sizes: Sizes, size_prices: Prices, node_price: float
) -> tuple[Indices, Amounts]:
    """Rows that hold more than they cost, with their pods."""
    counts = fill_rows(sizes, headroom, np.minimum(sizes.caps, sizes.counts), size_prices)
    values = counts @ size_prices + node_price
    ratio = np.divide(prices, values, out=np.full(len(prices), np.inf), where=values > 0)
    rows = np.argsort(ratio, kind="stable")[:_PATTERNS_PER_ROUND]
    rows = rows[ratio[rows] < _MAX_COST_RATIO]
    return rows, counts[rows]


def fill_rows(sizes: Sizes, headroom: Amounts, caps: Amounts, size_prices: Prices) -> Amounts:
    """Pods of each size on each row: the next pod has the highest price for its share of the scarcest resource that is
    left there."""
    requested = np.flatnonzero(sizes.vectors.any(axis=0))
    vectors, free = sizes.vectors[:, requested], np.maximum(headroom[:, requested], 0)
    counts = np.zeros((len(headroom), len(vectors)), dtype=np.int64)
    rows = np.arange(len(headroom))
    while len(rows):
        shares = (vectors / np.maximum(free[rows], _TINY)[:, None, :]).max(axis=2)
        values = np.where((shares <= 1) & (counts[rows] < caps), size_prices / np.maximum(shares, _TINY), -1.0)
        best = values.argmax(axis=1)
        found = values[np.arange(len(rows)), best] > 0
        rows, best, shares = rows[found], best[found], shares[found]
        pods = np.maximum(_STEP_SHARE / np.maximum(shares[np.arange(len(rows)), best], _TINY), 1).astype(np.int64)
        pods = np.minimum(pods, caps[best] - counts[rows, best])
        counts[rows, best] += pods
        free[rows] -= pods[:, None] * vectors[best]
    return counts


def undominated_types(headroom: Amounts, prices: Prices) -> Indices:
    """The types that no other type of at most the same price equals in every dimension."""
    return undominated_rows(headroom, np.lexsort((-headroom.sum(axis=1), prices)))


def group_sizes(vectors: Amounts, counts: Amounts) -> tuple[Indices, Amounts]:
    """The group of each vector, and the average vector of each group: equal pods, or similar ones where there are too
    many sizes. `counts` are positive."""
    described, step = vectors.astype(np.float64), _FINEST_STEP
    while len(np.unique(described, axis=0)) > MAX_SIZES:
        described, step = np.round(np.log2(np.maximum(vectors, 1)) / step), step * _STEP_GROWTH
    groups = np.asarray(np.unique(described, axis=0, return_inverse=True)[1].reshape(-1), dtype=np.intp)
    amounts = np.zeros((len(np.unique(groups)), vectors.shape[1]))
    np.add.at(amounts, groups, vectors * counts[:, None])
    return groups, np.ceil(amounts / np.bincount(groups, counts)[:, None]).astype(np.int64)
