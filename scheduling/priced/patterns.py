"""Which pods go together on which machine: the cheapest mix of filled machines, by column generation.

`costs.py` takes pods for divisible; here they are whole. A pattern is an instance type with so many pods of each size.
The linear programme over the patterns known so far says what a pod of each size is worth; machines that can be filled
with pods worth more than they cost are new patterns, until there are none (Gilmore and Gomory's method for cutting
stock).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduling.priced.costs import solve, undominated
from scheduling.priced.equal import fits_of
from scheduling.typetable import Amounts, Indices, Prices

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
