"""Which instance type a new node is meant to be: the one whose room is worth most for its price.

`packing.py` asks when a class of pods finds no place. Pools are tried by weight; among those of one weight
the cheapest wins.

Why nothing can be bought, in words: what is missing, and how near the nearest comes. For `buying.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np

from tenure.apis.quantity import format_amount
from tenure.apis.resources import NODES
from tenure.model.facts import HostPort
from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.nodepool_template import Offer, Option, Refusal
from tenure.scheduling.offerings import STRICT, missing_variety
from tenure.scheduling.packing.instance_mix import Mix, exact_mix, fit_of, fits_of
from tenure.scheduling.packing.node_requests import Choice, Need, Shelf, Stock
from tenure.scheduling.packing.pod_requirements import Variant
from tenure.scheduling.packing.shadow_prices import Guide
from tenure.scheduling.packing.valuation import Appraisal


def too_small(resources: Sequence[str], room: Amounts, vector: Amounts) -> Refusal:
    """Names the first resource that no type has enough of; else that none has enough of all together."""
    most = room.max(axis=0)
    for number in map(int, np.flatnonzero(vector > most)):
        key = resources[number]
        asked, found = format_amount(key, int(vector[number])), format_amount(key, max(0, int(most[number])))
        if not most[number]:
            return Refusal(f"no instance type has {key}")
        return Refusal(f"needs {asked} {key}; the largest instance type allowed has {found} beside its DaemonSets")
    asked = ", ".join(f"{format_amount(key, int(n))} {key}" for key, n in zip(resources, vector, strict=True) if n)
    return Refusal(f"no single instance type allowed has {asked} together beside its DaemonSets")


def over_limit(offer: Offer, fitting: Indices) -> Refusal:
    for key, limit in offer.budget.limits.items():
        left = offer.budget.left(key) or 0
        column = offer.table.columns.get(key)
        least = 1 if column is None else int(offer.table.capacity[fitting, column].min())
        if least > left:
            if key == NODES:
                return Refusal(f"limit nodes {limit} is reached")
            shown = [format_amount(key, amount) for amount in (limit, max(left, 0), least)]
            return Refusal(
                f"limit {key} {shown[0]}: {shown[1]} left, the smallest instance type that fits has {shown[2]}"
            )
    return Refusal("the limits together leave no instance type that fits")


_NEAR: Final = 1.02
"""Types this close to the best are as good; among them the planned mix and then the size decide."""
_IN_MIX: Final = 1.03
"""A type of the mix is taken when it is so near to the best for these very pods."""
_WEIGHED: Final = 48
"""Types that are filled with whole pods before one is chosen; the others are ruled out by what their room is worth."""
_NOTHING: Final = 1e-12
_EXACT: Final = 200
"""So many equal pods that nobody joins are given their cheapest nodes exactly."""


@dataclass(slots=True)
class Buyer:
    """One pass. `demand` is what is still to be placed, kept up to date by the packing."""

    offers: Sequence[Offer]
    appraisal: Appraisal
    min_values_policy: str = STRICT
    demand: Amounts = field(init=False)

    def __post_init__(self) -> None:
        self.demand = self.appraisal.demand.copy()

    def choose(self, need: Need) -> Choice | dict[str, Refusal]:
        """What to buy next, else the reasons why not by pool."""
        refusals: dict[str, Refusal] = {}
        for _, tier in groupby(self.offers, key=lambda offer: offer.template.pool.weight):
            found: list[tuple[float, Choice]] = []
            for offer in tier:
                one = self._of_offer(offer, need)
                if isinstance(one, Refusal):
                    refusals[offer.name] = one
                else:
                    found.append(one)
            if found:
                return min(found, key=lambda one: one[0])[1]
        return refusals

    def sells(self, variant: Variant, vector: Amounts, ports: Sequence[HostPort] = ()) -> bool:
        """Whether some pool has a type that takes such a pod, limits aside."""
        for offer in self.offers:
            option = offer.narrowed(None, variant)
            if not isinstance(option, Refusal):
                shelf = self.appraisal.shelf(offer, option)
                if ((shelf.room >= vector).all(axis=1) & offer.template.ports_free(ports)[shelf.rows]).any():
                    return True
        return False

    def larger(
        self, offer: Offer, option: Option, used: Amounts, rows: Indices, need: Need
    ) -> tuple[Indices, Amounts] | None:
        """What a node that holds so much already, now `rows`, may become to take most of such pods: rows and room.

        The limits count the new one instead of the old one.
        """
        shelf = self.appraisal.shelf(offer, option)
        offer.spend(rows, nodes=-1)
        free = offer.template.ports_free(need.ports) & offer.within_limits(option.types)
        left = shelf.room - used
        fits = np.minimum(np.where((left >= 0).all(axis=1), fits_of(np.maximum(left, 0), need.vector), 0), need.count)
        fits = np.where(free[shelf.rows], fits, 0)
        for most in np.unique(fits[fits > 0])[::-1]:
            enough = np.flatnonzero(fits >= most)
            kept = self._variety(offer, option, shelf, enough[np.lexsort((enough, shelf.prices[enough]))])
            if not isinstance(kept, Refusal):
                offer.spend(shelf.rows[kept])
                return shelf.rows[kept], shelf.room[kept].min(axis=0)
        offer.spend(rows)
        return None

    def stocks(self, variant: Variant) -> Iterator[Stock]:
        """What such pods can be given, by the weight of the pools. Ends where more than the price decides: at
        capacity that is reserved, and at minValues."""
        for _, tier in groupby(self.offers, key=lambda offer: offer.template.pool.weight):
            found = [(offer, option, self.appraisal.shelf(offer, option)) for offer, option in _open(tier, variant)]
            if any(offer.reservations() or _varied(option) for offer, option, _ in found):
                return
            if found:
                yield self._stock(found)

    def _stock(self, found: Sequence[tuple[Offer, Option, Shelf]]) -> Stock:
        room = np.concatenate([shelf.room for _, _, shelf in found])
        prices = np.concatenate([shelf.prices for _, _, shelf in found])
        return Stock(
            [(offer, option) for offer, option, _ in found],
            np.repeat(np.arange(len(found)), [len(shelf.rows) for _, _, shelf in found]),
            np.concatenate([shelf.rows for _, _, shelf in found]),
            room,
            np.concatenate([shelf.useful for _, _, shelf in found]),
            self.appraisal.judged(room, prices),
        )

    def _of_offer(self, offer: Offer, need: Need) -> tuple[float, Choice] | Refusal:
        reserved = self._reserved(offer, need)
        if reserved is not None:
            return 0.0, reserved
        option = offer.narrowed(None, need.variant)
        if isinstance(option, Refusal):
            return option
        shelf = self.appraisal.shelf(offer, option)
        fitting = (shelf.room >= need.vector).all(axis=1)
        if not fitting.any():
            return too_small(self.appraisal.resources, shelf.room, need.vector)
        fitting &= offer.template.ports_free(need.ports)[shelf.rows]
        if not fitting.any():
            shown = ", ".join(str(one.port) for one in need.ports)
            return Refusal(f"host port {shown} is taken by a DaemonSet on each instance type that fits")
        allowed = fitting & offer.within_limits(option.types)[shelf.rows] if offer.limited else fitting
        if not allowed.any():
            return over_limit(offer, shelf.rows[fitting])
        return self._best(offer, option, shelf, np.flatnonzero(allowed), need)

    def _reserved(self, offer: Offer, need: Need) -> Choice | None:
        """What is paid for already comes first: the reservation whose machine takes most of the pods, the smallest of
        equals, and no more nodes than it has room for."""
        found: list[tuple[int, float, Choice]] = []
        for one in offer.reservations():
            option = offer.narrowed(None, need.variant, one)
            if isinstance(option, Refusal):
                continue
            shelf = self.appraisal.shelf(offer, option)
            possible = offer.within_limits(option.types) & offer.template.ports_free(need.ports)
            allowed = (shelf.room >= need.vector).all(axis=1) & possible[shelf.rows]
            for row in np.flatnonzero(allowed):
                pods = min(need.count, need.cap, fit_of(shelf.room[row], need.vector))
                choice = Choice(offer, option, shelf.rows[[row]], shelf.room[row], pods, offer.rooms.left(one))
                found.append((-pods, float(shelf.prices[row]), choice))
        return min(found, key=lambda one: one[:2])[2] if found else None

    def _best(
        self, offer: Offer, option: Option, shelf: Shelf, among: Indices, need: Need
    ) -> tuple[float, Choice] | Refusal:
        """Price for what is of use, and the choice."""
        if need.together:
            fits = np.minimum(fits_of(shelf.room[among], need.vector), need.count)
            among = among[fits == fits.max()]
        if need.count <= _EXACT and not need.for_others and not _varied(option):
            fits = np.minimum(fits_of(shelf.room[among], need.vector), need.cap)
            among = among[[exact_mix(shelf.prices[among] + self.appraisal.node_cost, fits, need.count)]]
        guiding = self.appraisal.guide(offer)
        own = need.own
        coming = guiding.counts[shelf.rows].astype(np.int64) @ shelf.useful
        wanted = np.maximum(need.others - need.open_room - coming, 0) + own
        value = np.maximum(guiding.value(shelf.useful[among], wanted, forced=need.forced), _NOTHING)
        ratio = (shelf.prices[among] + self.appraisal.node_cost) / value
        mix = self.appraisal.mix(offer)
        if mix is not None and need.size >= 0 and not _varied(option):
            near = np.argsort(ratio, kind="stable")[:_WEIGHED]
            among = among[np.union1d(near, np.flatnonzero(mix.counts[shelf.rows[among]]))]
            ratio = (shelf.prices[among] + self.appraisal.node_cost) / self._whole_pods(mix, shelf.room[among], need)
        order = self._order(guiding, mix, shelf, among, ratio, need)
        kept = self._variety(offer, option, shelf, among[order])
        if isinstance(kept, Refusal):
            return kept
        together = shelf.room[kept].min(axis=0)
        pods = int(min(need.count, need.cap, fit_of(together, need.vector)))
        planned = int((mix or guiding).counts[shelf.rows[kept[0]]])
        return float(ratio[order[0]]), Choice(offer, option, shelf.rows[kept], together, pods, max(1, planned))

    def _whole_pods(self, mix: Mix, room: Amounts, need: Need) -> Prices:
        """What each row of room is worth when it is filled with these pods, and with others that are left."""
        most = min(need.count, need.cap)
        counts = self.appraisal.sizes.counts.copy()
        counts[need.size] = max(0, counts[need.size] - need.count)
        asked = np.maximum(need.others, 1)
        counts = (counts * np.clip(1 - (need.open_room / asked)[need.vector > 1], 0, 1).max(initial=0)).astype(np.int64)
        value = mix.value(room, counts, need.size, most + int(counts[need.size]), forced=need.forced)
        return np.maximum(value, _NOTHING)

    def _order(
        self, guiding: Guide, mix: Mix | None, shelf: Shelf, among: Indices, ratio: Prices, need: Need
    ) -> Indices:
        """The best first: of the planned mix; else near the lowest price for what is of use, not too large, large.

        Of the mix the largest; or, where a rule limits how many pods a node takes, the smallest that takes so many.
        """
        room = shelf.room[among]
        planned = (mix or guiding).counts[shelf.rows[among]] > 0
        if mix is not None:
            planned &= ratio <= ratio.min() * _IN_MIX
        near = ratio <= ratio.min() * _NEAR
        size = room.astype(np.float64) @ guiding.worth
        fewer = -np.minimum(fits_of(room, need.vector), need.cap) if need.forced else np.zeros(len(among))
        large = np.where(planned & need.forced, size, -size)
        over = self.appraisal.too_large(room, need.vector)
        price = np.where(near | planned, 0.0, ratio)
        return np.lexsort((shelf.rows[among], large, fewer * planned, over, price, ~near, ~planned))

    def _variety(self, offer: Offer, option: Option, shelf: Shelf, ordered: Indices) -> Indices | Refusal:
        """The first of the ordered rows, and as many of the next as minValues asks for."""
        needs = {key: one.min_values for key, one in option.requirements.items() if one.min_values is not None}
        if self.min_values_policy != STRICT or not needs:
            return ordered[:1]
        kept = [ordered[0]]
        for row in ordered[1:]:
            if not self._missing(offer, option, shelf, kept):
                break
            before = {key: offer.table.distinct(key, shelf.rows[kept]) for key in needs}
            if any(offer.table.distinct(key, shelf.rows[[*kept, row]]) > before[key] for key in needs):
                kept.append(row)
        missing = self._missing(offer, option, shelf, kept)
        return Refusal(f"minValues cannot be kept: {missing}") if missing else np.array(kept, dtype=np.intp)

    def _missing(self, offer: Offer, option: Option, shelf: Shelf, kept: list[np.intp]) -> str:
        return missing_variety(offer.table, option.requirements, shelf.rows[kept])


def _open(offers: Iterable[Offer], variant: Variant) -> Iterator[tuple[Offer, Option]]:
    for offer in offers:
        option = offer.narrowed(None, variant)
        if not isinstance(option, Refusal):
            yield offer, option


def _varied(option: Option) -> bool:
    return any(one.min_values is not None for one in option.requirements.values())
