"""The value of capacity: dual prices of the cheapest mix of instance types for a demand, by linear programming."""

from dataclasses import dataclass, field
from typing import Final

import highspy
import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Prices

_ROUNDING_TOLERANCE: Final = 1e-9


@dataclass(slots=True)
class ShadowPrices:
    """`resource_prices`: US dollars per hour for one unit of each resource; `node_price`: for one additional node."""

    resource_prices: Prices
    node_price: float = 0.0
    counts: Prices = field(default_factory=lambda: np.zeros(0))
    """The number of nodes of each row in the mix; reduced as nodes are added."""

    def value_headroom(self, headroom: Amounts, demand: Amounts, *, forced: bool) -> Prices:
        """The value in US dollars per hour of the capacity that the demand can use; `forced` adds `node_price`."""
        values = np.minimum(headroom, demand) @ self.resource_prices
        return np.asarray(values + self.node_price if forced else values, dtype=np.float64)


def solve_shadow_prices(headroom: Amounts, prices: Prices, demand: Amounts, *, nodes: int = 0) -> ShadowPrices | None:
    """The duals of the cheapest mix of rows that covers the demand, with at least `nodes` nodes.

    Pods count as divisible. None if the rows cannot cover the demand, or the solver finds no solution.
    """
    requested = np.flatnonzero(demand)
    problem = CoveringProblem(demand[requested], nodes)
    problem.add_columns(prices, headroom[:, requested])
    solved = problem.solve()
    if solved is None:
        return None
    counts, unit_prices, node_price = solved
    resource_prices = np.zeros(len(demand))
    resource_prices[requested] = unit_prices
    return ShadowPrices(resource_prices, node_price, np.ceil(counts - _ROUNDING_TOLERANCE))


class CoveringProblem:
    """The cheapest mix of columns that covers the demand, with at least `nodes` nodes.

    A solution after `add_columns` starts from the previous one.
    """

    def __init__(self, demand: Amounts, nodes: int) -> None:
        self._scale, self._nodes = np.maximum(demand, 1).astype(np.float64), max(nodes, 1)
        least = np.append(demand > 0, nodes > 0).astype(np.float64)
        self._row_count = len(least)
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        no_indices = np.zeros(0, dtype=np.int32)
        empty_rows = np.zeros(self._row_count, dtype=np.int32)
        infinite = np.full(self._row_count, highspy.kHighsInf)
        self._solver.addRows(self._row_count, least, infinite, 0, empty_rows, no_indices, np.zeros(0))

    def add_columns(self, prices: Prices, amounts: Amounts) -> None:
        """Each column is a node with these amounts."""
        count = len(prices)
        matrix = np.column_stack((amounts / self._scale, np.full(count, 1.0 / self._nodes)))
        self._solver.addCols(
            count,
            prices,
            np.zeros(count),
            np.full(count, highspy.kHighsInf),
            matrix.size,
            np.arange(0, matrix.size, self._row_count, dtype=np.int32),
            np.tile(np.arange(self._row_count, dtype=np.int32), count),
            matrix.reshape(-1),
        )

    def solve(self) -> tuple[Prices, Prices, float] | None:
        """The number of nodes of each column, the price of a unit of demand, and the price of an additional node. None
        if the solver finds no optimal solution."""
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        found = self._solver.getSolution()
        duals = np.maximum(found.row_dual, 0.0)
        return np.array(found.col_value), duals[:-1] / self._scale, float(duals[-1]) / self._nodes


def undominated_rows(offered: Amounts | Prices, order: Indices) -> Indices:
    """The rows, in this order, for which no earlier selected row offers at least as much of everything."""
    selected: list[int] = []
    while len(order):
        first, order = int(order[0]), order[1:]
        selected.append(first)
        order = order[~(offered[order] <= offered[first]).all(axis=1)]
    return np.array(selected, dtype=np.intp)


def inverse_demand_prices(demand: Amounts) -> Prices:
    """Price each resource at the inverse of its demand, as a fallback."""
    requested = demand.astype(np.float64)
    return np.divide(1.0, requested, out=np.zeros_like(requested), where=requested > 0)
