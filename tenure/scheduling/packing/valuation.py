"""The value of instance types in one pass: their usable capacity, prices and the cheapest mixes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.nodepool_template import Offer, Option, RejectionReason
from tenure.scheduling.packing.node_requests import InstanceChoice, TypeOptions
from tenure.scheduling.packing.patterns import MAX_SIZES, PatternSolution, Sizes, solve_patterns
from tenure.scheduling.packing.shadow_prices import ShadowPrices, inverse_demand_prices, solve_shadow_prices

_ROUNDING_TOLERANCE: Final = 1e-6
_MIN_NODES_FOR_DEMAND: Final = 4
"""A node should have at most 1/_MIN_NODES_FOR_DEMAND of the demand."""
_SMALL_NODE: Final = {"cpu": 16_000, "memory": 64 << 30}
_LARGE_NODE: Final = {"cpu": 64_000, "memory": 512 << 30}
"""Between _SMALL_NODE and _LARGE_NODE, the share of the demand limits the size of a node."""
_LARGE_NODE_PENALTY: Final = 1.1
"""Price factor of a node above this limit, so that the loss of one node does not affect all pods."""


@dataclass(slots=True)
class CapacityValuation:
    """For the demand at the start of a pass."""

    resources: Sequence[str]
    demand: Amounts
    granularity: Amounts
    """The amounts by which pods fill nodes; see `pod_classes.pod_granularity`."""
    max_per_node: Amounts
    """The most that pods can request of one node."""
    sizes: Sizes
    """Of all pods to place; the packing updates its counts."""
    least_nodes: int = 0
    node_cost: float = 0.0
    """US dollars per hour added to the price of each node; higher values favor fewer, larger nodes."""
    _type_options: dict[tuple[int, Option], TypeOptions] = field(default_factory=dict)
    _shadow_prices: dict[int, ShadowPrices] = field(default_factory=dict)
    _pattern_solutions: dict[int, PatternSolution | None] = field(default_factory=dict)

    def type_options(self, offer: Offer, option: Option) -> TypeOptions:
        key = (id(offer), option)
        known = self._type_options.get(key)
        if known is None:
            rows = np.flatnonzero(option.types)
            columns = [offer.table.columns.get(name, -1) for name in self.resources]
            headroom = np.zeros((len(rows), len(columns)), dtype=np.int64)
            for number, column in enumerate(columns):
                if column >= 0:
                    headroom[:, number] = option.headroom[rows, column]
            known = self._type_options[key] = TypeOptions(
                rows, headroom, self._useful_headroom(headroom), offer.cheapest_prices(option)[rows]
            )
        return known

    def _useful_headroom(self, headroom: Amounts) -> Amounts:
        grains = np.maximum(self.granularity, 1)
        return np.asarray(np.minimum(np.maximum(headroom, 0) // grains * grains, self.max_per_node), dtype=np.int64)

    def shadow_prices(self, offer: Offer) -> ShadowPrices:
        """The value of capacity in this pool for all pending pods together."""
        known = self._shadow_prices.get(id(offer))
        if known is None:
            known = self._shadow_prices[id(offer)] = self._compute_shadow_prices(offer)
        return known

    def _compute_shadow_prices(self, offer: Offer) -> ShadowPrices:
        base = offer.base_option()
        counts = np.zeros(len(offer.table))
        if isinstance(base, RejectionReason):
            return ShadowPrices(inverse_demand_prices(self.demand), counts=counts)
        type_options = self.type_options(offer, base)
        covered = np.where(type_options.headroom.max(axis=0) > 0, self.demand, 0)
        found = solve_shadow_prices(
            type_options.useful,
            self.adjusted_prices(type_options.headroom, type_options.prices),
            covered,
            nodes=self.least_nodes,
        )
        if found is None:
            return ShadowPrices(inverse_demand_prices(covered), counts=counts)
        counts[type_options.rows] = found.counts
        found.counts = counts
        return found

    def pattern_solution(self, offer: Offer) -> PatternSolution | None:
        """The cheapest mix for pods that share nodes; None if there is none, or with more than MAX_SIZES sizes."""
        if id(offer) not in self._pattern_solutions:
            base, found = offer.base_option(), None
            if 0 < len(self.sizes.counts) <= MAX_SIZES and not isinstance(base, RejectionReason):
                type_options = self.type_options(offer, base)
                found = solve_patterns(
                    type_options.headroom,
                    self.adjusted_prices(type_options.headroom, type_options.prices),
                    self.sizes,
                    nodes=self.least_nodes,
                )
                if found is not None:
                    counts = np.zeros(len(offer.table))
                    counts[type_options.rows] = np.ceil(found.counts - _ROUNDING_TOLERANCE)
                    found.counts = counts
            self._pattern_solutions[id(offer)] = found
        return self._pattern_solutions[id(offer)]

    def adjusted_prices(self, headroom: Amounts, prices: Prices) -> Prices:
        """Prices including `node_cost`, with a penalty for nodes above their share of the demand."""
        small = self.exceeds_demand_share(headroom, np.zeros_like(self.demand)) == 0
        burdened = np.where(small, 1.0, _LARGE_NODE_PENALTY if small.any() else 1.0) * (prices + self.node_cost)
        return np.asarray(burdened, dtype=np.float64)

    def exceeds_demand_share(self, headroom: Amounts, vector: Amounts) -> Indices:
        """1 for rows above the share of the demand that one node should have, else 0."""
        limit = np.full(len(self.resources), np.iinfo(np.int64).max)
        for number, key in enumerate(self.resources):
            if key in _SMALL_NODE:
                share = int(self.demand[number]) // _MIN_NODES_FOR_DEMAND
                limit[number] = max(_SMALL_NODE[key], min(_LARGE_NODE[key], share), int(vector[number]))
        return np.asarray((headroom > limit).any(axis=1), dtype=np.intp)

    def resource_prices(self, offer: Offer) -> Prices:
        """US dollars per hour for one unit of each resource in this pool."""
        return self.shadow_prices(offer).resource_prices

    def record_new_node(self, instance_choice: InstanceChoice) -> None:
        """Remove one such node from the planned mix."""
        for plan in (self.shadow_prices(instance_choice.offer), self.pattern_solution(instance_choice.offer)):
            if plan is not None:
                plan.counts[instance_choice.rows[0]] = max(0.0, plan.counts[instance_choice.rows[0]] - 1)
