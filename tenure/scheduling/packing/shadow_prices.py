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
    scale = np.maximum(demand[requested], 1).astype(np.float64)
    matrix = np.column_stack((headroom[:, requested] / scale, np.full(len(headroom), 1.0 / max(nodes, 1))))
    solved = solve_covering(prices, matrix, np.concatenate((np.ones(len(requested)), [1.0 if nodes else 0.0])))
    if solved is None:
        return None
    counts, duals = solved
    resource_prices = np.zeros(len(demand))
    resource_prices[requested] = np.maximum(duals[:-1], 0) / scale
    return ShadowPrices(resource_prices, max(0.0, duals[-1]) / max(nodes, 1), np.ceil(counts - _ROUNDING_TOLERANCE))


def solve_covering(prices: Prices, matrix: Prices, least: Prices) -> tuple[Prices, Prices] | None:
    """The amounts x ≥ 0 with transpose(`matrix`) · x ≥ `least` at the lowest cost, and the duals. None if the solver
    finds no optimal solution."""
    columns, rows = matrix.shape
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    # Arrays instead of a HighsLp, which converts them number by number.
    solver.passModel(
        columns,
        rows,
        matrix.size,
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        prices,
        np.zeros(columns),
        np.full(columns, highspy.kHighsInf),
        least,
        np.full(rows, highspy.kHighsInf),
        np.arange(0, matrix.size, rows),
        np.tile(np.arange(rows), columns),
        matrix.reshape(-1),
        np.full(columns, int(highspy.HighsVarType.kContinuous)),
    )
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    found = solver.getSolution()
    return np.array(found.col_value), np.array(found.row_dual)


def undominated_rows(offered: Amounts | Prices, order: Indices) -> Indices:
    """The rows, in this order, for which no earlier selected row offers at least as much of everything."""
    selected: list[int] = []
    for row in order:
        if not selected or not (offered[selected] >= offered[row]).all(axis=1).any():
            selected.append(int(row))
    return np.array(selected, dtype=np.intp)


def inverse_demand_prices(demand: Amounts) -> Prices:
    """Price each resource at the inverse of its demand, as a fallback."""
    requested = demand.astype(np.float64)
    return np.divide(1.0, requested, out=np.zeros_like(requested), where=requested > 0)
