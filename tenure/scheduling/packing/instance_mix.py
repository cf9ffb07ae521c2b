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
from tenure.scheduling.packing.shadow_prices import optimum, solve, undominated

_STEPS: Final = 3.0
"""To a doubling of the proportion between two resources: pods within a step are one kind."""
_WHOLE: Final = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Classes of pods by the proportions of what they ask for, and by the types that take them."""

    of: Indices
    """The kind of each class."""
    sizes: Prices
    """Of one pod of each class, in parts of the largest room there is, all resources added up."""

    def amounts(self, recipe: Mapping[int, int]) -> Prices:
        """How much of each kind some pods of each class are."""
        found = np.zeros(int(self.of.max()) + 1)
        for one, count in recipe.items():
            found[self.of[one]] += self.sizes[one] * count
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """So many nodes of one type of a mix."""

    row: int
    nodes: int
    worth: Prices
    """US dollars an hour for one unit of each resource here: all room together is worth the price."""
    budgets: Prices
    """How much of each kind is meant for one such node, in the unit of `Kinds.sizes`."""


def mixture(room: Amounts, prices: Prices, vectors: Amounts, counts: Amounts) -> tuple[Kinds, list[Part]]:
    """The mix for `counts` pods of the sizes in `vectors`, of rows with so much `room`.

    Types of which it has less than one are left out, and pods that fit none of the cheap types are not looked at.
    """
    rows = _worthwhile(room, prices, vectors[counts > 0].max(axis=0))
    room, prices = room[rows], prices[rows]
    fits: Mask = np.all(vectors[:, None, :] <= room[None, :, :], axis=2)
    parts = vectors / np.maximum(room.max(axis=0), 1)
    kinds = Kinds(_kinds(parts, fits), parts.sum(axis=1))
    wanted = np.where(fits.any(axis=1), counts, 0)
    number = int(kinds.of.max()) + 1
    demand = np.zeros((number, vectors.shape[1]))
    np.add.at(demand, kinds.of, vectors * wanted[:, None])
    volumes = np.zeros(number)
    np.add.at(volumes, kinds.of, kinds.sizes * wanted)
    fitting = np.zeros((number, len(rows)), dtype=bool)
    fitting[kinds.of] = fits
    solved = _solve(room.astype(np.float64), prices, demand, fitting)
    if solved is None:
        return kinds, []
    nodes, shares, worth = solved
    return kinds, [
        Part(int(rows[one]), int(nodes[one] + _WHOLE), worth[one], shares[one] * volumes / nodes[one])
        for one in np.flatnonzero(nodes >= 1 - _WHOLE)
    ]


def _worthwhile(room: Amounts, prices: Prices, largest: Amounts) -> Indices:
    """Rows for whose price no other row has as much of everything, and takes the largest pods if these do."""
    asked = np.flatnonzero(largest)
    roomy = (room >= largest).all(axis=1)
    offered: Prices = np.column_stack((room[:, asked] / prices[:, None], roomy))
    return np.sort(undominated(offered, np.lexsort((np.arange(len(offered)), -offered.sum(axis=1)))))


def _kinds(parts: Prices, fits: Mask) -> Indices:
    """Equal numbers for classes of one kind."""
    most = parts.max(axis=1, keepdims=True)
    steps = np.round(_STEPS * np.log2(np.maximum(parts, _WHOLE) / np.maximum(most, _WHOLE)))
    proportions = np.where(parts > 0, steps, -np.inf)
    described = np.column_stack((np.maximum(proportions, -3 * _STEPS), fits))
    return np.asarray(np.unique(described, axis=0, return_inverse=True)[1].reshape(-1), dtype=np.intp)


def _solve(room: Prices, prices: Prices, demand: Prices, fitting: Mask) -> tuple[Prices, Prices, Prices] | None:
    """How many of each row, which part of each kind is on them, and what a unit of each resource is worth there.

    The programme: nodes and parts of kinds such that each row's nodes hold the parts that are on them, and every kind
    that is asked for is on some.
    """
    types, resources = room.shape
    unit = np.maximum(room, 1.0)
    wanted = np.flatnonzero(demand.any(axis=1) & fitting.any(axis=1))
    pairs = [(int(one), int(kind)) for kind in wanted for one in np.flatnonzero(fitting[kind])]
    if not pairs:
        return None
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = types + len(pairs), types * resources + len(wanted)
    model.col_cost_ = np.concatenate((prices, np.zeros(len(pairs))))
    model.col_lower_ = np.zeros(model.num_col_)
    model.col_upper_ = np.full(model.num_col_, highspy.kHighsInf)
    model.row_lower_ = np.concatenate((np.zeros(types * resources), np.ones(len(wanted))))
    model.row_upper_ = np.full(model.num_row_, highspy.kHighsInf)
    starts, index, value = [0], list[int](), list[float]()
    for one in range(types):
        index += range(one * resources, (one + 1) * resources)
        value += (room[one] / unit[one]).tolist()
        starts.append(len(index))
    covered = {kind: types * resources + number for number, kind in enumerate(wanted.tolist())}
    for one, kind in pairs:
        asked = np.flatnonzero(demand[kind])
        index += [*(one * resources + asked).tolist(), covered[kind]]
        value += [*(-demand[kind, asked] / unit[one, asked]).tolist(), 1.0]
        starts.append(len(index))
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = starts, index, value
    solved = optimum(model)
    if solved is None:
        return None
    columns, duals = solved
    shares = np.zeros((types, len(demand)))
    for (one, kind), share in zip(pairs, columns[types:], strict=True):
        shares[one, kind] = share
    worth = np.maximum(duals[: types * resources].reshape(types, resources), 0.0) / unit
    return columns[:types], shares, worth


def exact_mix(prices: Prices, fits: Amounts, count: int) -> int:
    """The largest node of the cheapest way to hold all of equal pods; by dynamic programming over their number."""
    fits = np.minimum(fits, count)
    ways = _equal_worthwhile(prices, fits)
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


def _equal_worthwhile(prices: Prices, fits: Amounts) -> list[tuple[int, float, int]]:
    """How many pods, at which price, in which row: only those that nothing as cheap holds as many as."""
    order = np.lexsort((np.arange(len(fits)), prices, -fits))
    before = np.minimum.accumulate(np.concatenate(([np.inf], prices[order][:-1])))
    return [(int(fits[row]), float(prices[row]), int(row)) for row in order[prices[order] < before]]


MOST_SIZES: Final = 48
"""More would cost more time than they save dollars."""
_ROUNDS: Final = 20
_NEW: Final = 6
"""Patterns that one round adds, for each order in which machines are filled."""
_PLENTY: Final = 1 << 40
_ENOUGH: Final = 0.999
"""No pattern that is worth adding costs more than this part of its pods' worth."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """What pods ask for: one row for each size, how many there are, and how many of them a node may hold."""

    vectors: Amounts
    counts: Amounts
    caps: Amounts


@dataclass(slots=True, eq=False)
class Mix:
    """`worth` in US dollars an hour for one pod of each size, `node` for having one more node at all."""

    sizes: Sizes
    worth: Prices
    node: float = 0.0
    counts: Prices = field(default_factory=lambda: np.zeros(0))
    """How many of each row of machines the mix has."""
    order: list[int] = field(init=False)
    """In which pods go on a machine."""

    def __post_init__(self) -> None:
        self.order = list(map(int, next(orders(self.sizes, self.worth))))

    def value(self, room: Amounts, left: Amounts, first: int, most: int, *, forced: bool) -> Prices:
        """Per row of room what it can hold is worth: up to `most` pods of the size `first`, then what is `left`."""
        caps = np.minimum(left, self.sizes.caps)
        caps[first] = most
        worth = filled(self.sizes, room, caps, [first, *self.order]) @ self.worth
        return worth + (self.node if forced else 0.0)


def cheapest_mix(room: Amounts, prices: Prices, sizes: Sizes, *, nodes: int = 0) -> Mix | None:
    """None when some size fits no machine, or the solver has no answer."""
    kept = worthwhile(room, prices)
    room, prices, every = room[kept], prices[kept], len(room)
    rows, patterns = _singles(room, prices, sizes)
    if rows is None:
        return None
    for _ in range(_ROUNDS):
        found = _master(prices, rows, patterns, sizes, nodes)
        if found is None:
            return None
        used, worth, node = found
        fresh_rows, fresh = _better(room, prices, sizes, worth, node)
        if not len(fresh_rows):
            break
        rows, patterns = np.concatenate((rows, fresh_rows)), np.concatenate((patterns, fresh))
    counts = np.zeros(every)
    np.add.at(counts, kept[rows[: len(used)]], used)
    return Mix(sizes, worth, node, counts)


def _singles(room: Amounts, prices: Prices, sizes: Sizes) -> tuple[Indices | None, Amounts]:
    """Each size by itself, on the machine that holds it cheapest."""
    rows, patterns = [], np.zeros((len(sizes.counts), len(sizes.counts)), dtype=np.int64)
    for number, vector in enumerate(sizes.vectors):
        fits = np.minimum(np.maximum(fits_of(room, vector), 0), min(sizes.caps[number], sizes.counts[number]))
        if not fits.any():
            return None, patterns
        row = int(np.argmin(np.where(fits > 0, prices / np.maximum(fits, 1), np.inf)))
        patterns[number, number] = fits[row]
        rows.append(row)
    return np.array(rows, dtype=np.intp), patterns


def _master(
    prices: Prices, rows: Indices, patterns: Amounts, sizes: Sizes, nodes: int
) -> tuple[Prices, Prices, float] | None:
    """How often each pattern is used, and the duals."""
    scale = sizes.counts.astype(np.float64)
    matrix = np.column_stack((patterns / scale, np.full(len(rows), 1.0 / max(nodes, 1))))
    solved = solve(prices[rows], matrix, np.concatenate((np.ones(len(scale)), [1.0 if nodes else 0.0])))
    if solved is None:
        return None
    used, duals = solved
    return used, np.maximum(duals[:-1], 0) / scale, max(0.0, float(duals[-1])) / max(nodes, 1)


def _better(room: Amounts, prices: Prices, sizes: Sizes, worth: Prices, node: float) -> tuple[Indices, Amounts]:
    """Machines that hold more than they cost, with what they hold."""
    rows, found = list[int](), list[Amounts]()
    caps = np.minimum(sizes.caps, sizes.counts)
    for order in orders(sizes, worth):
        counts = filled(sizes, room, caps, order)
        value = counts @ worth + node
        ratio = np.where(value > 0, prices / np.maximum(value, 1e-12), np.inf)
        for row in np.argsort(ratio, kind="stable")[:_NEW]:
            if ratio[row] < _ENOUGH:
                rows.append(int(row))
                found.append(counts[row])
    return np.array(rows, dtype=np.intp), np.array(found, dtype=np.int64).reshape(len(rows), len(worth))


def orders(sizes: Sizes, worth: Prices) -> Iterator[Indices]:
    """In which pods go on a machine: most worth first for each resource, and for all of them together."""
    total = np.maximum((sizes.vectors * sizes.counts[:, None]).sum(axis=0), 1)
    shares = sizes.vectors / total
    for share in (shares.max(axis=1), shares.sum(axis=1)):
        yield np.argsort(-worth / np.maximum(share, 1e-15), kind="stable")
    yield np.argsort(-worth, kind="stable")


def filled(sizes: Sizes, room: Amounts, caps: Amounts, order: Iterator[int] | Indices | list[int]) -> Amounts:
    """How many pods of each size each row of room holds when it is filled in this order."""
    asked = np.flatnonzero(sizes.vectors.any(axis=0))
    left, vectors = room[:, asked], sizes.vectors[:, asked]
    divisors, unasked = np.maximum(vectors, 1), np.where(vectors > 0, 0, _PLENTY)
    counts = np.zeros((len(caps), len(room)), dtype=np.int64)
    for number in order:
        cap = caps[number]
        if cap > 0 and not counts[number].any():
            taken = np.minimum((left // divisors[number] + unasked[number]).min(axis=1), cap)
            counts[number] = taken
            left = left - taken[:, None] * vectors[number]
    return np.maximum(counts.T, 0)


def worthwhile(room: Amounts, prices: Prices) -> Indices:
    """The machines that no other outdoes: as large in everything and no dearer."""
    return undominated(room, np.lexsort((-room.sum(axis=1), prices)))
