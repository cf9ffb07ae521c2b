"""The domains of a topology key: those that pods may use, and those that a spread constraint takes notice of.

From the homes that stand and the offers of the pass; `packing.py` asks for each class and key.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tenure.apis.labels import CAPACITY_TYPE, ZONE, ZONE_ID
from tenure.model.requirements import Requirement, Requirements
from tenure.scheduling.instance_type_table import Mask
from tenure.scheduling.nodepool_template import Offer, Option, Refusal
from tenure.scheduling.packing.nodes import Places
from tenure.scheduling.packing.pod_requirements import Variant, pinned
from tenure.scheduling.packing.topology import Spread, Tally
from tenure.scheduling.taints import untolerated


@dataclass(slots=True)
class Universe:
    """One pass."""

    places: Places
    offers: Sequence[Offer]
    coming: Sequence[Requirements] = ()
    """What is certain of nodes that others have bought."""
    _usable: dict[tuple[Variant, str], list[str]] = field(default_factory=dict)
    _noticed: dict[Tally, Mask] = field(default_factory=dict)
    _counted: dict[Spread, tuple[str, ...]] = field(default_factory=dict)

    def usable(self, variant: Variant, key: str) -> list[str]:
        """Where such pods may go, cheapest first: domains of homes, and of what can be bought now."""
        known = self._usable.get((variant, key))
        if known is None:
            known = self._usable[variant, key] = sorted(
                asked_for({*self._standing(key), *self._offered(variant, key)}, variant, key),
                key=lambda value: (self._price_in(variant, key, value), value),
            )
        return known

    def counted(self, rule: Spread) -> tuple[str, ...]:
        """Those in which the emptiest is looked for: of nodes that the constraint takes notice of, of what the pods'
        strict requirements let them buy (reference 2.14), and of nodes that are coming, whoever may use them."""
        known = self._counted.get(rule)
        if known is None:
            key = rule.tally.census.key
            noticed = (place for place in self.places.homes.there if self.notices(rule.tally, place))
            standing = {value for place in noticed if (value := self.places.domain(place, key)) is not None}
            offered = {value for variant in rule.strict for value in self._offered(variant, key)}
            coming = {value for marks in self.coming if key in marks for value in marks[key].values}
            known = self._counted[rule] = tuple(sorted(standing | offered | coming))
        return known

    def notices(self, tally: Tally, place: int) -> bool:
        """Whether pods on this node are counted, by nodeAffinityPolicy and nodeTaintsPolicy."""
        nodes, lane = tally.census.nodes, self.places.lane_at(place)
        if lane is None:
            noticed = self._noticed.get(tally)
            if noticed is None:
                noticed = self._noticed[tally] = self.places.homes.noticed(nodes.alternatives, nodes.tolerations)
            return bool(noticed[place])
        if nodes.alternatives and not any(lane.option.requirements.compatible(one) for one in nodes.alternatives):
            return False
        taints = lane.offer.template.pool.taints
        return nodes.tolerations is None or untolerated(nodes.tolerations, taints, tolerate_preferences=True) is None

    def _standing(self, key: str) -> set[str]:
        homes = self.places.homes.there
        return {value for place in homes if (value := self.places.domain(place, key)) is not None}

    def _offered(self, variant: Variant, key: str) -> set[str]:
        found: set[str] = set()
        for offer in self.offers:
            option = offer.narrowed(None, variant)
            if not isinstance(option, Refusal):
                found |= _values(offer, option.requirements.get(key), option, key)
        return found

    def _price_in(self, variant: Variant, key: str, value: str) -> float:
        prices = [
            float(offer.prices(option)[option.types].min())
            for offer in self.offers
            if not isinstance(option := offer.narrowed(None, pinned(variant, key, value)), Refusal)
        ]
        return min(prices, default=float("inf"))


def asked_for(values: Iterable[str], variant: Variant, key: str) -> list[str]:
    """Those of a label's values that such pods ask for."""
    wanted = variant.requirements.get(key)
    return [value for value in values if wanted is None or wanted.has(value)]


def _values(offer: Offer, wanted: Requirement | None, option: Option, key: str) -> set[str]:
    table = offer.table
    if key in (ZONE, ZONE_ID, CAPACITY_TYPE):
        column = {ZONE: table.zones, ZONE_ID: table.zone_ids, CAPACITY_TYPE: table.capacity_types}[key]
        return set(column[option.offerings])
    if wanted is not None and not wanted.complement:
        return set(wanted.values)
    return table.values_of(key, option.types)
