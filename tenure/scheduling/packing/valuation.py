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
"""A node is meant to hold at most this part of the demand."""
_SMALL_NODE: Final = {"cpu": 16_000, "memory": 64 << 30}
_LARGE_NODE: Final = {"cpu": 64_000, "memory": 512 << 30}
"""Between these bounds a node is as large as its share of the demand."""
_LARGE_NODE_PENALTY: Final = 1.1
"""Price increase of a node above its share, so that losing one node does not lose all pods."""


@dataclass(slots=True)
class CapacityValuation:
    """Of the demand with which a pass began."""

    resources: Sequence[str]
    demand: Amounts
    granularity: Amounts
    """The amounts that pods come in; see `pod_classes.py`."""
    max_per_node: Amounts
    """The most that one node can be asked for."""
    sizes: Sizes
    """Of all that is to be placed; its counts are kept up to date by the packing."""
    least_nodes: int = 0
    node_cost: float = 0.0
    """US dollars an hour that each node counts for beyond its price: the more, the fewer and larger nodes."""
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
                    headroom[:, number] = offer.template.headroom[rows, column]
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
        """The types that pods share; None if unknown, or with too many sizes."""
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
        """Prices with the burden that a node is, and more for those that are too large."""
        small = self.exceeds_demand_share(headroom, np.zeros_like(self.demand)) == 0
        burdened = np.where(small, 1.0, _LARGE_NODE_PENALTY if small.any() else 1.0) * (prices + self.node_cost)
        return np.asarray(burdened, dtype=np.float64)

    def exceeds_demand_share(self, headroom: Amounts, vector: Amounts) -> Indices:
        """1 for rows above the share of the demand that one node is meant to have."""
        limit = np.full(len(self.resources), np.iinfo(np.int64).max)
        for number, key in enumerate(self.resources):
            if key in _SMALL_NODE:
                share = int(self.demand[number]) // _MIN_NODES_FOR_DEMAND
                limit[number] = max(_SMALL_NODE[key], min(_LARGE_NODE[key], share), int(vector[number]))
        return np.asarray((headroom > limit).any(axis=1), dtype=np.intp)

    def resource_prices(self, offer: Offer) -> Prices:
        """Of one unit of each resource, in this pool."""
        return self.shadow_prices(offer).resource_prices

    def record_new_node(self, instance_choice: InstanceChoice) -> None:
        """One such node is bought: the mix has one less in mind."""
        for plan in (self.shadow_prices(instance_choice.offer), self.pattern_solution(instance_choice.offer)):
            if plan is not None:
                plan.counts[instance_choice.rows[0]] = max(0.0, plan.counts[instance_choice.rows[0]] - 1)
