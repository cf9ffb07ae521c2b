"""The cheapest mix of nodes for pods that may go anywhere, with which pods are meant for which type.

`costs.py` takes all room of a mix for one; here a part of a pod takes its CPU and its memory from the same type, so
that a type is only in the mix where there are pods to fill it. `blending.py` then makes whole pods and nodes of it.

Which pods go together on which machine: the cheapest mix of filled machines, by column generation.

`costs.py` takes pods for divisible; here they are whole. A pattern is an instance type with so many pods of each size.
The linear programme over the patterns known so far says what a pod of each size is worth; machines that can be filled
with pods worth more than they cost are new patterns, until there are none (Gilmore and Gomory's method for cutting
stock).

Equal pods: how many a machine holds, and the cheapest nodes for those that nobody joins, exactly.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import highspy
import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Mask, Prices
from tenure.scheduling.packing.shadow_prices import solve_covering, solve_model, undominated_rows

_STEPS_PER_DOUBLING: Final = 3.0
"""To a doubling of the proportion between two resources: pods within a step are one kind."""
_INTEGER_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class PodKinds:
    """Classes of pods by the proportions of what they ask for, and by the types that take them."""

    kind_by_class: Indices
    """The kind of each class."""
    sizes: Prices
    """Of one pod of each class, in parts of the largest room there is, all resources added up."""

    def amounts_by_kind(self, recipe: Mapping[int, int]) -> Prices:
        """How much of each kind some pods of each class are."""
        found = np.zeros(int(self.kind_by_class.max()) + 1)
        for one, count in recipe.items():
            found[self.kind_by_class[one]] += self.sizes[one] * count
        return found


@dataclass(frozen=True, slots=True, eq=False)
class TypeAllocation:
    """So many nodes of one type of a mix."""

    row: int
    nodes: int
    resource_prices: Prices
    """US dollars an hour for one unit of each resource here: all room together is worth the price."""
    budgets: Prices
    """How much of each kind is meant for one such node, in the unit of `PodKinds.sizes`."""


def allocate_types(
    headroom: Amounts, prices: Prices, vectors: Amounts, counts: Amounts
) -> tuple[PodKinds, list[TypeAllocation]]:
    """The mix for `counts` pods of the sizes in `vectors`, of rows with so much `headroom`.

    Types of which it has less than one are left out, and pods that fit none of the cheap types are not looked at.
    """
    rows = _cost_effective_rows(headroom, prices, vectors[counts > 0].max(axis=0))
    headroom, prices = headroom[rows], prices[rows]
    fits: Mask = np.all(vectors[:, None, :] <= headroom[None, :, :], axis=2)
    parts = vectors / np.maximum(headroom.max(axis=0), 1)
    kinds = PodKinds(_group_by_proportions(parts, fits), parts.sum(axis=1))
    fitting_counts = np.where(fits.any(axis=1), counts, 0)
    number = int(kinds.kind_by_class.max()) + 1
    demand = np.zeros((number, vectors.shape[1]))
    np.add.at(demand, kinds.kind_by_class, vectors * fitting_counts[:, None])
    volumes = np.zeros(number)
    np.add.at(volumes, kinds.kind_by_class, kinds.sizes * fitting_counts)
    fitting = np.zeros((number, len(rows)), dtype=bool)
    fitting[kinds.kind_by_class] = fits
    solved = _solve_allocation(headroom.astype(np.float64), prices, demand, fitting)
    if solved is None:
        return kinds, []
    nodes, shares, resource_prices = solved
    return kinds, [
        TypeAllocation(
            int(rows[one]),
            int(nodes[one] + _INTEGER_TOLERANCE),
            resource_prices[one],
            shares[one] * volumes / nodes[one],
        )
        for one in np.flatnonzero(nodes >= 1 - _INTEGER_TOLERANCE)
    ]


def _cost_effective_rows(headroom: Amounts, prices: Prices, largest: Amounts) -> Indices:
    """Rows for whose price no other row has as much of everything, and takes the largest pods if these do."""
    requested = np.flatnonzero(largest)
    has_headroom = (headroom >= largest).all(axis=1)
    offered: Prices = np.column_stack((headroom[:, requested] / prices[:, None], has_headroom))
    return np.sort(undominated_rows(offered, np.lexsort((np.arange(len(offered)), -offered.sum(axis=1)))))


def _group_by_proportions(parts: Prices, fits: Mask) -> Indices:
    """Equal numbers for classes of one kind."""
    most = parts.max(axis=1, keepdims=True)
    steps = np.round(
        _STEPS_PER_DOUBLING * np.log2(np.maximum(parts, _INTEGER_TOLERANCE) / np.maximum(most, _INTEGER_TOLERANCE))
    )
    proportions = np.where(parts > 0, steps, -np.inf)
    described = np.column_stack((np.maximum(proportions, -3 * _STEPS_PER_DOUBLING), fits))
    return np.asarray(np.unique(described, axis=0, return_inverse=True)[1].reshape(-1), dtype=np.intp)


def _solve_allocation(
    headroom: Prices, prices: Prices, demand: Prices, fitting: Mask
) -> tuple[Prices, Prices, Prices] | None:
    """How many of each row, which part of each kind is on them, and what a unit of each resource is worth there.

    The programme: nodes and parts of kinds such that each row's nodes hold the parts that are on them, and every kind
    that is asked for is on some.
    """
    types, resources = headroom.shape
    unit = np.maximum(headroom, 1.0)
    requested_kinds = np.flatnonzero(demand.any(axis=1) & fitting.any(axis=1))
    pairs = [(int(row), int(kind)) for kind in requested_kinds for row in np.flatnonzero(fitting[kind])]
    if not pairs:
        return None
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = types + len(pairs), types * resources + len(requested_kinds)
    model.col_cost_ = np.concatenate((prices, np.zeros(len(pairs))))
    model.col_lower_ = np.zeros(model.num_col_)
    model.col_upper_ = np.full(model.num_col_, highspy.kHighsInf)
    model.row_lower_ = np.concatenate((np.zeros(types * resources), np.ones(len(requested_kinds))))
    model.row_upper_ = np.full(model.num_row_, highspy.kHighsInf)
    starts, index, value = [0], list[int](), list[float]()
    for row in range(types):
        index += range(row * resources, (row + 1) * resources)
        value += (headroom[row] / unit[row]).tolist()
        starts.append(len(index))
    covered = {kind: types * resources + number for number, kind in enumerate(requested_kinds.tolist())}
    for row, kind in pairs:
        requested = np.flatnonzero(demand[kind])
        index += [*(row * resources + requested).tolist(), covered[kind]]
        value += [*(-demand[kind, requested] / unit[row, requested]).tolist(), 1.0]
        starts.append(len(index))
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = starts, index, value
    solved = solve_model(model)
    if solved is None:
        return None
    columns, duals = solved
    shares = np.zeros((types, len(demand)))
    for (row, kind), share in zip(pairs, columns[types:], strict=True):
        shares[row, kind] = share
    resource_prices = np.maximum(duals[: types * resources].reshape(types, resources), 0.0) / unit
    return columns[:types], shares, resource_prices


def choose_exact_row(prices: Prices, fits: Amounts, count: int) -> int:
    """The largest node of the cheapest way to hold all of equal pods; by dynamic programming over their number."""
    fits = np.minimum(fits, count)
    row_options = _cost_effective_fits(prices, fits)
    if len(row_options) == 1:
        return row_options[0][2]
    row_by_pod_count = {pod_count: row for pod_count, _, row in row_options}
    cost, last = [0.0], [0]
    for pods in range(1, count + 1):
        paid, pod_count = min(
            [(price + cost[max(0, pods - pod_count)], -pod_count) for pod_count, price, _ in row_options]
        )
        cost.append(paid)
        last.append(-pod_count)
    pods, largest = count, 0
    while pods > 0:
        largest = max(largest, last[pods])
        pods -= last[pods]
    return row_by_pod_count[largest]


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


def _cost_effective_fits(prices: Prices, fits: Amounts) -> list[tuple[int, float, int]]:
    """How many pods, at which price, in which row: only those that nothing as cheap holds as many as."""
    order = np.lexsort((np.arange(len(fits)), prices, -fits))
    before = np.minimum.accumulate(np.concatenate(([np.inf], prices[order][:-1])))
    return [(int(fits[row]), float(prices[row]), int(row)) for row in order[prices[order] < before]]


MAX_SIZES: Final = 48
"""More would cost more time than they save dollars."""
_MAX_ROUNDS: Final = 20
_PATTERNS_PER_ROUND: Final = 6
"""Patterns that one round adds, for each order in which machines are filled."""
_UNBOUNDED_COUNT: Final = 1 << 40
_MAX_COST_RATIO: Final = 0.999
"""No pattern that is worth adding costs more than this part of its pods' worth."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """What pods ask for: one row for each size, how many there are, and how many of them a node may hold."""

    vectors: Amounts
    counts: Amounts
    caps: Amounts


@dataclass(slots=True, eq=False)
class PatternSolution:
    """`worth` in US dollars an hour for one pod of each size, `node_price` for having one more node at all."""

    sizes: Sizes
    size_prices: Prices
    node_price: float = 0.0
    counts: Prices = field(default_factory=lambda: np.zeros(0))
    """How many of each row of machines the mix has."""
    packing_order: list[int] = field(init=False)
    """In which pods go on a machine."""

    def __post_init__(self) -> None:
        self.packing_order = list(map(int, next(packing_orders(self.sizes, self.size_prices))))

    def value_headroom(self, headroom: Amounts, remaining: Amounts, first: int, most: int, *, forced: bool) -> Prices:
        """Per row of room what it can hold is worth: up to `most` pods of the size `first`, then what is
        `remaining`."""
        caps = np.minimum(remaining, self.sizes.caps)
        caps[first] = most
        values = pack_headroom(self.sizes, headroom, caps, [first, *self.packing_order]) @ self.size_prices
        return values + (self.node_price if forced else 0.0)


def solve_patterns(headroom: Amounts, prices: Prices, sizes: Sizes, *, nodes: int = 0) -> PatternSolution | None:
    """None when some size fits no machine, or the solver has no answer."""
    cost_effective = undominated_types(headroom, prices)
    headroom, prices, every = headroom[cost_effective], prices[cost_effective], len(headroom)
    rows, patterns = _initial_patterns(headroom, prices, sizes)
    if rows is None:
        return None
    for _ in range(_MAX_ROUNDS):
        solution = _solve_master(prices, rows, patterns, sizes, nodes)
        if solution is None:
            return None
        used, size_prices, node_price = solution
        fresh_rows, fresh = _find_improving_patterns(headroom, prices, sizes, size_prices, node_price)
        if not len(fresh_rows):
            break
        rows, patterns = np.concatenate((rows, fresh_rows)), np.concatenate((patterns, fresh))
    counts = np.zeros(every)
    np.add.at(counts, cost_effective[rows[: len(used)]], used)
    return PatternSolution(sizes, size_prices, node_price, counts)


def _initial_patterns(headroom: Amounts, prices: Prices, sizes: Sizes) -> tuple[Indices | None, Amounts]:
    """Each size by itself, on the machine that holds it cheapest."""
    rows, patterns = [], np.zeros((len(sizes.counts), len(sizes.counts)), dtype=np.int64)
    for number, vector in enumerate(sizes.vectors):
        fits = np.minimum(np.maximum(pods_per_row(headroom, vector), 0), min(sizes.caps[number], sizes.counts[number]))
        if not fits.any():
            return None, patterns
        row = int(np.argmin(np.where(fits > 0, prices / np.maximum(fits, 1), np.inf)))
        patterns[number, number] = fits[row]
        rows.append(row)
    return np.array(rows, dtype=np.intp), patterns


def _solve_master(
    prices: Prices, rows: Indices, patterns: Amounts, sizes: Sizes, nodes: int
) -> tuple[Prices, Prices, float] | None:
    """How often each pattern is used, and the duals."""
    scale = sizes.counts.astype(np.float64)
    matrix = np.column_stack((patterns / scale, np.full(len(rows), 1.0 / max(nodes, 1))))
    solved = solve_covering(prices[rows], matrix, np.concatenate((np.ones(len(scale)), [1.0 if nodes else 0.0])))
    if solved is None:
        return None
    used, duals = solved
    return used, np.maximum(duals[:-1], 0) / scale, max(0.0, float(duals[-1])) / max(nodes, 1)


def _find_improving_patterns(
    headroom: Amounts, prices: Prices, sizes: Sizes, size_prices: Prices, node_price: float
) -> tuple[Indices, Amounts]:
    """Machines that hold more than they cost, with what they hold."""
    rows, found = list[int](), list[Amounts]()
    caps = np.minimum(sizes.caps, sizes.counts)
    for order in packing_orders(sizes, size_prices):
        counts = pack_headroom(sizes, headroom, caps, order)
        value = counts @ size_prices + node_price
        ratio = np.where(value > 0, prices / np.maximum(value, 1e-12), np.inf)
        for row in np.argsort(ratio, kind="stable")[:_PATTERNS_PER_ROUND]:
            if ratio[row] < _MAX_COST_RATIO:
                rows.append(int(row))
                found.append(counts[row])
    return np.array(rows, dtype=np.intp), np.array(found, dtype=np.int64).reshape(len(rows), len(size_prices))


def packing_orders(sizes: Sizes, size_prices: Prices) -> Iterator[Indices]:
    """In which pods go on a machine: most worth first for each resource, and for all of them together."""
    total = np.maximum((sizes.vectors * sizes.counts[:, None]).sum(axis=0), 1)
    shares = sizes.vectors / total
    for share in (shares.max(axis=1), shares.sum(axis=1)):
        yield np.argsort(-size_prices / np.maximum(share, 1e-15), kind="stable")
    yield np.argsort(-size_prices, kind="stable")


def pack_headroom(
    sizes: Sizes, headroom: Amounts, caps: Amounts, order: Iterator[int] | Indices | list[int]
) -> Amounts:
    """How many pods of each size each row of room holds when it is filled in this order."""
    requested = np.flatnonzero(sizes.vectors.any(axis=0))
    remaining, vectors = headroom[:, requested], sizes.vectors[:, requested]
    divisors, unrequested = np.maximum(vectors, 1), np.where(vectors > 0, 0, _UNBOUNDED_COUNT)
    counts = np.zeros((len(caps), len(headroom)), dtype=np.int64)
    for number in order:
        cap = caps[number]
        if cap > 0 and not counts[number].any():
            taken = np.minimum((remaining // divisors[number] + unrequested[number]).min(axis=1), cap)
            counts[number] = taken
            remaining = remaining - taken[:, None] * vectors[number]
    return np.maximum(counts.T, 0)


def undominated_types(headroom: Amounts, prices: Prices) -> Indices:
    """The machines that no other outdoes: as large in everything and no dearer."""
    return undominated_rows(headroom, np.lexsort((-headroom.sum(axis=1), prices)))
