"""The cheapest mix of nodes for pods that may go anywhere, with which pods are meant for which type.

`costs.py` takes all room of a mix for one; here a part of a pod takes its CPU and its memory from the same type, so
that a type is only in the mix where there are pods to fill it. `blending.py` then makes whole pods and nodes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import highspy
import numpy as np

from scheduling.priced.costs import optimum, undominated
from scheduling.typetable import Amounts, Indices, Mask, Prices

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
