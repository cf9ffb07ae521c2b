"""What machines and pods are worth in one pass: the shelves of what pools sell, and the mixes that are cheapest.

`buying.py` chooses by it, machine by machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.nodepool_template import Offer, Option, Refusal
from tenure.scheduling.packing.instance_mix import MOST_SIZES, Mix, Sizes, cheapest_mix
from tenure.scheduling.packing.node_requests import Choice, Shelf
from tenure.scheduling.packing.shadow_prices import Guide, guide, plain_worth

_ROUNDED: Final = 1e-6
_SHARE: Final = 4
"""A node is meant to hold at most this part of the demand."""
_SMALL: Final = {"cpu": 16_000, "memory": 64 << 30}
_LARGE: Final = {"cpu": 64_000, "memory": 512 << 30}
"""Between these bounds a node is as large as its share of the demand."""
_DISCOURAGED: Final = 1.1
"""So much dearer a node above its share seems: losing one is then not losing all."""


@dataclass(slots=True)
class Appraisal:
    """Of the demand with which a pass began."""

    resources: Sequence[str]
    demand: Amounts
    grain: Amounts
    """The amounts that pods come in; see `classes.py`."""
    fullest: Amounts
    """The most that one node can be asked for."""
    sizes: Sizes
    """Of all that is to be placed; its counts are kept up to date by the packing."""
    least_nodes: int = 0
    node_cost: float = 0.0
    """US dollars an hour that each node counts for beyond its price: the more, the fewer and larger nodes."""
    _shelves: dict[tuple[int, Option], Shelf] = field(default_factory=dict)
    _guides: dict[int, Guide] = field(default_factory=dict)
    _mixes: dict[int, Mix | None] = field(default_factory=dict)

    def shelf(self, offer: Offer, option: Option) -> Shelf:
        key = (id(offer), option)
        known = self._shelves.get(key)
        if known is None:
            rows = np.flatnonzero(option.types)
            columns = [offer.table.columns.get(name, -1) for name in self.resources]
            room = np.zeros((len(rows), len(columns)), dtype=np.int64)
            for number, column in enumerate(columns):
                if column >= 0:
                    room[:, number] = offer.template.room[rows, column]
            known = self._shelves[key] = Shelf(rows, room, self._useful(room), offer.prices(option)[rows])
        return known

    def _useful(self, room: Amounts) -> Amounts:
        grains = np.maximum(self.grain, 1)
        return np.asarray(np.minimum(np.maximum(room, 0) // grains * grains, self.fullest), dtype=np.int64)

    def guide(self, offer: Offer) -> Guide:
        """What capacity is worth in this pool, all pods that wait taken together."""
        known = self._guides.get(id(offer))
        if known is None:
            known = self._guides[id(offer)] = self._reckon(offer)
        return known

    def _reckon(self, offer: Offer) -> Guide:
        base = offer.base()
        counts = np.zeros(len(offer.table))
        if isinstance(base, Refusal):
            return Guide(plain_worth(self.demand), counts=counts)
        shelf = self.shelf(offer, base)
        covered = np.where(shelf.room.max(axis=0) > 0, self.demand, 0)
        found = guide(shelf.useful, self.judged(shelf.room, shelf.prices), covered, nodes=self.least_nodes)
        if found is None:
            return Guide(plain_worth(covered), counts=counts)
        counts[shelf.rows] = found.counts
        found.counts = counts
        return found

    def mix(self, offer: Offer) -> Mix | None:
        """Which machines pods go on together; None where nobody knows, or there are too many sizes."""
        if id(offer) not in self._mixes:
            base, found = offer.base(), None
            if 0 < len(self.sizes.counts) <= MOST_SIZES and not isinstance(base, Refusal):
                shelf = self.shelf(offer, base)
                found = cheapest_mix(
                    shelf.room, self.judged(shelf.room, shelf.prices), self.sizes, nodes=self.least_nodes
                )
                if found is not None:
                    counts = np.zeros(len(offer.table))
                    counts[shelf.rows] = np.ceil(found.counts - _ROUNDED)
                    found.counts = counts
            self._mixes[id(offer)] = found
        return self._mixes[id(offer)]

    def judged(self, room: Amounts, prices: Prices) -> Prices:
        """Prices with the burden that a node is, and more for those that are too large."""
        small = self.too_large(room, np.zeros_like(self.demand)) == 0
        burdened = np.where(small, 1.0, _DISCOURAGED if small.any() else 1.0) * (prices + self.node_cost)
        return np.asarray(burdened, dtype=np.float64)

    def too_large(self, room: Amounts, vector: Amounts) -> Indices:
        """1 for rows above the share of the demand that one node is meant to have."""
        limit = np.full(len(self.resources), np.iinfo(np.int64).max)
        for number, key in enumerate(self.resources):
            if key in _SMALL:
                share = int(self.demand[number]) // _SHARE
                limit[number] = max(_SMALL[key], min(_LARGE[key], share), int(vector[number]))
        return np.asarray((room > limit).any(axis=1), dtype=np.intp)

    def worth(self, offer: Offer) -> Prices:
        """Of one unit of each resource, in this pool."""
        return self.guide(offer).worth

    def bought(self, choice: Choice) -> None:
        """One such node is bought: the mix has one less in mind."""
        for plan in (self.guide(choice.offer), self.mix(choice.offer)):
            if plan is not None:
                plan.counts[choice.rows[0]] = max(0.0, plan.counts[choice.rows[0]] - 1)
