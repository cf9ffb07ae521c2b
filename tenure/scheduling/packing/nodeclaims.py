"""Bought nodes as NodeClaims, with every type that could stand in for the one that a node is meant to be.

`tenure/scheduling/nodeclaim_builder.py` writes them one by one; here those that may become the same types are
written once.
"""

from collections.abc import Mapping

import numpy as np

from tenure.model.facts import PodFact
from tenure.model.provisioning import PlannedClaim
from tenure.scheduling.instance_type_table import Amounts, Indices, Mask
from tenure.scheduling.nodeclaim_builder import Fill, cheapest_first, planned_claim, why
from tenure.scheduling.nodepool_template import Refusal
from tenure.scheduling.packing.nodes import Bought, Lane, Places


class Emission:
    """The claims of one pass."""

    def __init__(self, places: Places, pods: Mapping[str, PodFact], min_values_policy: str, most_types: int) -> None:
        self._places, self._pods = places, pods
        self._policy, self._most = min_values_policy, most_types
        self._known: dict[tuple[int, bytes], tuple[PlannedClaim, Amounts] | Refusal] = {}
        self._sorted: dict[int, Indices] = {}

    def claim(self, number: int) -> PlannedClaim | Refusal:
        """The claim for a bought node, or why there can be none."""
        one, fill = self._places.bought[number], self.fill(number)
        key = one.lane, fill.rows.tobytes()
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._written(fill)
        if isinstance(known, Refusal):
            return known
        claim, daemons = known
        own = {
            "requests": fill.offer.table.amounts(fill.used + daemons),
            "pods": tuple(one.pods),
            "why": why(fill, [self._pods[uid] for uid in one.pods], self._places.first),
        }
        return claim.model_copy(update=own)

    def price(self, number: int) -> float:
        """US dollars an hour of the cheapest type that a bought node can be."""
        fill = self.fill(number)
        return float(fill.offer.prices(fill.option)[fill.rows[0]])

    def fill(self, number: int) -> Fill:
        """What a bought node holds, its types cheapest first."""
        one = self._places.bought[number]
        lane = self._places.lanes[one.lane]
        used = self._used(lane, number)
        rows = self._cheapest(one.lane)
        return Fill(lane.offer, lane.option, used, rows[self._fitting(lane, one, used)[rows]])

    def _written(self, fill: Fill) -> tuple[PlannedClaim, Amounts] | Refusal:
        """The claim, and what DaemonSets take at least on any of its types (reference 2.9)."""
        claim = planned_claim(fill, (), self._policy, self._most)
        if isinstance(claim, Refusal):
            return claim
        return claim, fill.offer.template.overhead[fill.rows[: self._most]].min(axis=0)

    def _cheapest(self, number: int) -> Indices:
        """All types of a lane, cheapest first."""
        known = self._sorted.get(number)
        if known is None:
            lane = self._places.lanes[number]
            every = Fill(lane.offer, lane.option, np.zeros(0, dtype=np.int64), np.flatnonzero(lane.option.types))
            known = self._sorted[number] = cheapest_first(every)
        return known

    def _used(self, lane: Lane, number: int) -> Amounts:
        used = self._places.used(number)
        return used[[self._places.columns[key] for key in lane.offer.table.resources]]

    def _fitting(self, lane: Lane, one: Bought, used: Amounts) -> Mask:
        table = lane.offer.table
        template = lane.offer.template
        fitting: Mask = np.all(template.room >= used, axis=1) & template.ports_free(one.ports)
        for key in lane.offer.budget.limits:
            if key in table.columns:
                # No larger than what was counted against the limit when it was bought.
                column = table.capacity[:, table.columns[key]]
                fitting &= column <= column[one.rows].max()
        return fitting
