"""The value of capacity: dual prices of the cheapest mix of instance types for a demand, by linear programming."""

from dataclasses import dataclass, field
from typing import Final

import highspy
import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Prices

_ROUNDING_TOLERANCE: Final = 1e-9


@dataclass(slots=True)
class ShadowPrices:
    """`resource_prices` in US dollars an hour for one unit of each resource, `node_price` for having one more node at
    all."""

    resource_prices: Prices
    node_price: float = 0.0
    counts: Prices = field(default_factory=lambda: np.zeros(0))
    """How many of each row the mix has; a plan draws them down."""

    def value_headroom(self, headroom: Amounts, demand: Amounts, *, forced: bool) -> Prices:
        """Dollar value of each row's capacity that the demand can use; `forced`: a node alone has value."""
        values = np.minimum(headroom, demand) @ self.resource_prices
        return np.asarray(values + self.node_price if forced else values, dtype=np.float64)


def solve_shadow_prices(headroom: Amounts, prices: Prices, demand: Amounts, *, nodes: int = 0) -> ShadowPrices | None:
    """Duals of: the cheapest multiset of rows whose room covers the demand, with at least so many nodes.

    Pods are taken for divisible. None when the rows cannot cover it, or the solver has no answer.
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
    """The amount of each row at the lowest cost, and the duals of the demand, for the transposed `matrix`."""
    columns, rows = matrix.shape
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, rows
    model.col_cost_, model.col_lower_ = prices, np.zeros(columns)
    model.col_upper_ = np.full(columns, highspy.kHighsInf)
    model.row_lower_, model.row_upper_ = least, np.full(rows, highspy.kHighsInf)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, columns * rows + 1, rows)
    model.a_matrix_.index_ = np.tile(np.arange(rows), columns)
    model.a_matrix_.value_ = matrix.reshape(-1)
    return solve_model(model)


def solve_model(model: highspy.HighsLp) -> tuple[Prices, Prices] | None:
    """Columns and duals of rows; None when there is no solution, or the solver has no answer."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    found = solver.getSolution()
    return np.array(found.col_value), np.array(found.row_dual)


def undominated_rows(offered: Amounts | Prices, order: Indices) -> Indices:
    """The rows, taken in this order, that no row before them equals or outdoes in everything they offer."""
    selected: list[int] = []
    for row in order:
        if not selected or not (offered[selected] >= offered[row]).all(axis=1).any():
            selected.append(int(row))
    return np.array(selected, dtype=np.intp)


def inverse_demand_prices(demand: Amounts) -> Prices:
    """Price each resource at the inverse of its demand, as a fallback."""
    requested = demand.astype(np.float64)
    return np.divide(1.0, requested, out=np.zeros_like(requested), where=requested > 0)
