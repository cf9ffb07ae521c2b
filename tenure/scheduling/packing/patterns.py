"""The cheapest mix of nodes filled with whole pods, by column generation.

A pattern is an instance type with a number of pods of each size. The linear program over the known patterns yields the
price of a pod of each size. A node whose pods are worth more than it costs becomes a new pattern, until none is left
(Gilmore and Gomory's method for cutting stock).
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.packing.shadow_prices import CoveringProblem, solve_shadow_prices, undominated_rows


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
_MAX_GROUPS: Final = 28
"""Fewer groups of similar pods than MAX_SIZES: the rest of each node is filled with real pods."""
_MAX_ROUNDS: Final = 32
_MAX_LATER_ROUNDS: Final = 8
"""Used when patterns from an earlier solution for more pods are known."""
_PATTERNS_PER_ROUND: Final = 12
_TINY: Final = 1e-9
_STEP_SHARE: Final = 0.2
"""Share of a row's free capacity that is filled with pods of one size before the next size is chosen."""
_MIN_NODES: Final = 1e-6
_FINEST_STEP: Final = 1 / 8
"""In doublings of an amount; pods within a step form one group."""
_STEP_GROWTH: Final = 1.25
_MIN_SAVED_SHARE: Final = 0.001
_MIN_SAVED_NODES: Final = 0.1
"""A new pattern must save at least _MIN_SAVED_SHARE of the value of its pods. In a small mix it must save this part of
a node, since the mix is rounded to whole nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """Pod requests: one row per size, with its number of pods and the maximum per node."""

    vectors: Amounts
    counts: Amounts
    caps: Amounts


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """`nodes` nodes of the type in `row`, each with `pods` of each size."""

    row: int
    pods: Amounts
    nodes: float


class KnownPatterns(NamedTuple):
    """`rows`: the instance type of each pattern, as an index of `types`; `pods`: its pods of each size."""

    types: Indices
    """The undominated types."""
    rows: Indices
    pods: Amounts


@dataclass(slots=True, eq=False)
class PatternSolution:
    """`size_prices`: US dollars per hour for one pod of each size; `node_price`: for one additional node."""

    sizes: Sizes
    size_prices: Prices
    node_price: float = 0.0
    counts: Prices = field(default_factory=lambda: np.zeros(0))
    """The number of nodes of each row in the mix."""
    patterns: list[Pattern] = field(default_factory=list)
    """Patterns of the mix, most nodes first."""
    known_patterns: KnownPatterns | None = None
    """All patterns, as a start for a solution with fewer pods."""

    def value_headroom(self, headroom: Amounts, remaining: Amounts, first: int, most: int, *, forced: bool) -> Prices:
        """The value of each row: up to `most` pods of the size `first`, then the most valuable of the `remaining`."""
        vector, caps = self.sizes.vectors[first], np.minimum(remaining, self.sizes.caps)
        counts = np.minimum(np.maximum(pods_per_row(headroom, vector), 0), most)
        caps[first] = 0
        others = fill_rows(self.sizes, headroom - counts[:, None] * vector, caps, self.size_prices)
        values = others @ self.size_prices + counts * self.size_prices[first]
        return np.asarray(values + (self.node_price if forced else 0.0), dtype=np.float64)


def solve_patterns(
    headroom: Amounts, prices: Prices, sizes: Sizes, *, nodes: int = 0, known_patterns: KnownPatterns | None = None
) -> PatternSolution | None:
    """The cheapest mix with at least `nodes` nodes. None if a size fits no row, or the solver finds no solution."""
    cost_effective = known_patterns.types if known_patterns else undominated_types(headroom, prices)
    headroom, prices, every = headroom[cost_effective], prices[cost_effective], len(headroom)
    initial = (
        (known_patterns.rows, known_patterns.pods) if known_patterns else _initial_patterns(headroom, prices, sizes)
    )
    if initial is None:
        return None
    rows, patterns = initial
    master = CoveringProblem(sizes.counts, nodes)
    master.add_columns(prices[rows], np.minimum(patterns, sizes.counts))
    for _ in range(_MAX_LATER_ROUNDS if known_patterns else _MAX_ROUNDS):
        solution = master.solve()
        if solution is None:
            return None
        used, size_prices, node_price = solution
        saved_share = max(_MIN_SAVED_SHARE, _MIN_SAVED_NODES / max(used.sum(), 1))
        new_rows, new_patterns = _find_improving_patterns(
            headroom, prices, sizes, size_prices, node_price, max_cost_ratio=1 - saved_share
        )
        if not len(new_rows):
            break
        master.add_columns(prices[new_rows], np.minimum(new_patterns, sizes.counts))
        rows, patterns = np.concatenate((rows, new_rows)), np.concatenate((patterns, new_patterns))
    counts, used_rows = np.zeros(every), cost_effective[rows[: len(used)]]
    np.add.at(counts, used_rows, used)
    order = [one for one in np.argsort(-used, kind="stable") if used[one] > _MIN_NODES]
    found = [Pattern(int(used_rows[one]), patterns[one], float(used[one])) for one in order]
    return PatternSolution(sizes, size_prices, node_price, counts, found, KnownPatterns(cost_effective, rows, patterns))


def _initial_patterns(headroom: Amounts, prices: Prices, sizes: Sizes) -> tuple[Indices, Amounts] | None:
    """One pattern per size, of the row with the lowest price per pod, and one per row, filled at the prices of
    divisible pods."""
    rows, patterns = [], np.zeros((len(sizes.counts), len(sizes.counts)), dtype=np.int64)
    for number, vector in enumerate(sizes.vectors):
        fits = np.minimum(np.maximum(pods_per_row(headroom, vector), 0), min(sizes.caps[number], sizes.counts[number]))
        if not fits.any():
            return None
        row = int(np.argmin(np.where(fits > 0, prices / np.maximum(fits, 1), np.inf)))
        patterns[number, number] = fits[row]
        rows.append(row)
    found = np.array(rows, dtype=np.intp)
    divisible = solve_shadow_prices(headroom, prices, sizes.counts @ sizes.vectors)
    if divisible is None:
        return found, patterns
    size_prices = sizes.vectors @ divisible.resource_prices
    filled = fill_rows(sizes, headroom, np.minimum(sizes.caps, sizes.counts), size_prices)
    return np.concatenate((found, np.arange(len(headroom)))), np.concatenate((patterns, filled))


def _find_improving_patterns(
    headroom: Amounts, prices: Prices, sizes: Sizes, size_prices: Prices, node_price: float, *, max_cost_ratio: float
) -> tuple[Indices, Amounts]:
    """Rows that cost less than this fraction of the value of their pods, with these pods."""
    counts = fill_rows(sizes, headroom, np.minimum(sizes.caps, sizes.counts), size_prices)
    values = counts @ size_prices + node_price
    ratio = np.divide(prices, values, out=np.full(len(prices), np.inf), where=values > 0)
    rows = np.argsort(ratio, kind="stable")[:_PATTERNS_PER_ROUND]
    rows = rows[ratio[rows] < max_cost_ratio]
    return rows, counts[rows]


def fill_rows(sizes: Sizes, headroom: Amounts, caps: Amounts, size_prices: Prices) -> Amounts:
    """Pods of each size on each row. The next pod is the one with the highest price for its share of the scarcest
    remaining resource."""
    requested = np.flatnonzero(sizes.vectors.any(axis=0))
    vectors = sizes.vectors[:, requested].T.astype(np.float64)
    free = np.maximum(headroom[:, requested].T, _TINY)
    left, rows = np.tile(caps, (len(headroom), 1)), np.arange(len(headroom))
    while True:
        shares = np.maximum((vectors[:, None, :] / free[:, :, None]).max(axis=0), _TINY)
        values = np.where((shares <= 1) & (left > 0), size_prices / shares, 0.0)
        best = values.argmax(axis=1)
        found = values[rows, best] > 0
        if not found.any():
            return caps - left
        pods = np.maximum(_STEP_SHARE / shares[rows, best], 1).astype(np.int64)
        pods = np.minimum(pods, left[rows, best]) * found
        left[rows, best] -= pods
        free = np.maximum(free - pods * vectors[:, best], _TINY)


def undominated_types(headroom: Amounts, prices: Prices) -> Indices:
    """The types for which no type at the same or a lower price has at least as much of every resource."""
    return undominated_rows(headroom, np.lexsort((-headroom.sum(axis=1), prices)))


def group_sizes(vectors: Amounts, counts: Amounts) -> tuple[Indices, Amounts]:
    """The group of each vector, and the average vector of each group. A group has equal pods, or similar pods if there
    are more than _MAX_GROUPS sizes. `counts` must be positive."""
    groups, count = _number_rows(vectors)
    doublings, step = np.log2(np.maximum(vectors, 1)), _FINEST_STEP
    while count > _MAX_GROUPS:
        groups, count = _number_rows(np.round(doublings / step).astype(np.int16))
        step *= _STEP_GROWTH
    amounts = np.zeros((count, vectors.shape[1]))
    np.add.at(amounts, groups, vectors * counts[:, None])
    return groups, np.ceil(amounts / np.bincount(groups, counts)[:, None]).astype(np.int64)


def _number_rows(rows: Amounts) -> tuple[Indices, int]:
    """The same number for equal rows, and how many different rows there are. Comparing rows as bytes is fast."""
    data = np.ascontiguousarray(rows)
    unique, numbers = np.unique(data.view(f"V{data.shape[1] * data.itemsize}").reshape(-1), return_inverse=True)
    return np.asarray(numbers.reshape(-1), dtype=np.intp), len(unique)
