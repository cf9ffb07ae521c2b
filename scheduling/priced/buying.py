"""Which instance type a new node is meant to be: the one whose room is worth most for its price.

`packing.py` asks when a class of pods finds no place. Pools are tried by weight; among those of one weight
the cheapest wins.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np

from model.quantity import format_amount
from scheduling.pools import Offer, Option, Refusal
from scheduling.priced.costs import Guide, guide
from scheduling.priced.demand import Variant
from scheduling.priced.ports import clash
from scheduling.priced.stock import Choice, Need, Shelf, Stock
from scheduling.typetable import Amounts, Indices, Prices
from scheduling.variety import STRICT, missing_variety

__all__ = ["Buyer", "Choice", "Need", "Stock", "exact_mix", "over_limit"]

_NEAR: Final = 1.02
"""Types this close to the best are as good; among them the planned mix and then the size decide."""
_DISCOURAGED: Final = 10.0
_NOTHING: Final = 1e-12
_EXACT: Final = 200
"""So many equal pods that nobody joins are given their cheapest nodes exactly."""
_SHARE: Final = 4
"""A node is meant to hold at most this part of the demand, so that losing one is not losing all."""
_SMALL: Final = {"cpu": 16_000, "memory": 64 << 30}
_LARGE: Final = {"cpu": 64_000, "memory": 512 << 30}
"""Between these bounds a node is as large as its share of the demand."""


@dataclass(slots=True)
class Buyer:
    """One pass. `demand` is what is still to be placed, kept up to date by the packing."""

    offers: Sequence[Offer]
    resources: Sequence[str]
    demand: Amounts
    grain: Amounts
    """The amounts that pods come in; see `classes.py`."""
    fullest: Amounts
    """The most that one node can be asked for."""
    least_nodes: int = 0
    min_values_policy: str = STRICT
    node_cost: float = 0.0
    """US dollars an hour that each node counts for beyond its price: the more, the fewer and larger nodes."""
    _shelves: dict[tuple[int, Option], Shelf] = field(default_factory=dict)
    _guides: dict[int, Guide] = field(default_factory=dict)
    whole: Amounts = field(init=False)
    """The demand at the start."""

    def __post_init__(self) -> None:
        self.whole = self.demand.copy()

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

    def stocks(self, variant: Variant) -> Iterator[Stock]:
        """What such pods can be given, by the weight of the pools. Ends where more than the price decides: at
        capacity that is reserved, and at minValues."""
        for _, tier in groupby(self.offers, key=lambda offer: offer.template.pool.weight):
            found = [(offer, option, self._shelf(offer, option)) for offer, option in _open(tier, variant)]
            if any(offer.reservations() or _varied(option) for offer, option, _ in found):
                return
            if found:
                yield self._stock(found)

    def _stock(self, found: Sequence[tuple[Offer, Option, Shelf]]) -> Stock:
        room = np.concatenate([shelf.room for _, _, shelf in found])
        small = self._too_large(room, np.zeros_like(self.demand)) == 0
        penalty = np.where(small, 1.0, _DISCOURAGED if small.any() else 1.0)
        return Stock(
            [(offer, option) for offer, option, _ in found],
            np.repeat(np.arange(len(found)), [len(shelf.rows) for _, _, shelf in found]),
            np.concatenate([shelf.rows for _, _, shelf in found]),
            room,
            np.concatenate([shelf.useful for _, _, shelf in found]),
            (np.concatenate([shelf.prices for _, _, shelf in found]) + self.node_cost) * penalty,
        )

    def _of_offer(self, offer: Offer, need: Need) -> tuple[float, Choice] | Refusal:
        taken = next((one for one in need.ports for held in offer.template.ports if clash(one, held)), None)
        if taken is not None:
            return Refusal(f"host port {taken.port} is taken by a DaemonSet on each of its nodes")
        reserved = self._reserved(offer, need)
        if reserved is not None:
            return 0.0, reserved
        option = offer.narrowed(None, need.variant)
        if isinstance(option, Refusal):
            return option
        shelf = self._shelf(offer, option)
        fitting = (shelf.room >= need.vector).all(axis=1)
        if not fitting.any():
            return _too_small(self.resources, shelf.room, need.vector)
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
            shelf = self._shelf(offer, option)
            allowed = (shelf.room >= need.vector).all(axis=1) & offer.within_limits(option.types)[shelf.rows]
            for row in np.flatnonzero(allowed):
                pods = min(need.count, need.cap, _fit(shelf.room[row], need.vector))
                choice = Choice(offer, option, shelf.rows[[row]], shelf.room[row], pods, offer.rooms.left(one))
                found.append((-pods, float(shelf.prices[row]), choice))
        return min(found, key=lambda one: one[:2])[2] if found else None

    def _best(
        self, offer: Offer, option: Option, shelf: Shelf, among: Indices, need: Need
    ) -> tuple[float, Choice] | Refusal:
        """Price for what is of use, and the choice."""
        if need.together:
            fits = np.minimum(_fits(shelf.room[among], need.vector), need.count)
            among = among[fits == fits.max()]
        if need.count <= _EXACT and not need.for_others and not _varied(option):
            among = among[
                [exact_mix(shelf.prices[among] + self.node_cost, _fits(shelf.room[among], need.vector), need)]
            ]
        guiding = self._guide(offer)
        own = need.own
        coming = guiding.counts[shelf.rows].astype(np.int64) @ shelf.useful
        wanted = np.maximum(need.others - need.open_room - coming, 0) + own
        value = np.maximum(guiding.value(shelf.useful[among], wanted, forced=need.forced), _NOTHING)
        ratio = (shelf.prices[among] + self.node_cost) / value
        order = self._order(guiding, shelf, among, ratio, need)
        kept = self._variety(offer, option, shelf, among[order])
        if isinstance(kept, Refusal):
            return kept
        together = shelf.room[kept].min(axis=0)
        pods = int(min(need.count, need.cap, _fit(together, need.vector)))
        planned = int(guiding.counts[shelf.rows[kept[0]]])
        return float(ratio[order[0]]), Choice(offer, option, shelf.rows[kept], together, pods, max(1, planned))

    def _order(self, guiding: Guide, shelf: Shelf, among: Indices, ratio: Prices, need: Need) -> Indices:
        """The best first: of the planned mix; else near the lowest price for what is of use, not too large, large.

        Of the mix the largest; or, where a rule limits how many pods a node takes, the smallest that takes so many.
        """
        room = shelf.room[among]
        planned = guiding.counts[shelf.rows[among]] > 0
        near = ratio <= ratio.min() * _NEAR
        size = room.astype(np.float64) @ guiding.worth
        fewer = -np.minimum(_fits(room, need.vector), need.cap) if need.forced else np.zeros(len(among))
        large = np.where(planned & need.forced, size, -size)
        over = self._too_large(room, need.vector)
        price = np.where(near | planned, 0.0, ratio)
        return np.lexsort((shelf.rows[among], large, fewer * planned, over, price, ~near, ~planned))

    def _too_large(self, room: Amounts, vector: Amounts) -> Indices:
        """1 for rows above the share of the demand that one node is meant to have."""
        limit = np.full(len(self.resources), np.iinfo(np.int64).max)
        for number, key in enumerate(self.resources):
            if key in _SMALL:
                share = int(self.whole[number]) // _SHARE
                limit[number] = max(_SMALL[key], min(_LARGE[key], share), int(vector[number]))
        return np.asarray((room > limit).any(axis=1), dtype=np.intp)

    def bought(self, choice: Choice) -> None:
        """One such node is bought: the mix has one less in mind."""
        counts, target = self._guide(choice.offer).counts, choice.rows[0]
        counts[target] = max(0.0, counts[target] - 1)

    def worth(self, offer: Offer) -> Prices:
        """Of one unit of each resource, in this pool."""
        return self._guide(offer).worth

    def _guide(self, offer: Offer) -> Guide:
        """What capacity is worth in this pool, all pods that wait taken together."""
        known = self._guides.get(id(offer))
        if known is None:
            known = self._guides[id(offer)] = self._reckon(offer)
        return known

    def _reckon(self, offer: Offer) -> Guide:
        base = offer.base()
        counts = np.zeros(len(offer.table))
        if isinstance(base, Refusal):
            return Guide(_plain_worth(self.whole), counts=counts)
        shelf = self._shelf(offer, base)
        covered = np.where(shelf.room.max(axis=0) > 0, self.whole, 0)
        small = self._too_large(shelf.room, np.zeros_like(self.demand)) == 0
        prices = np.where(small, 1.0, _DISCOURAGED if small.any() else 1.0) * (shelf.prices + self.node_cost)
        found = guide(shelf.useful, prices, covered, nodes=self.least_nodes)
        if found is None:
            return Guide(_plain_worth(covered), counts=counts)
        counts[shelf.rows] = found.counts
        found.counts = counts
        return found

    def _shelf(self, offer: Offer, option: Option) -> Shelf:
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


def exact_mix(prices: Prices, fits: Amounts, need: Need) -> int:
    """The largest node of the cheapest way to hold all of equal pods; by dynamic programming over their number."""
    fits = np.minimum(np.minimum(fits, need.cap), need.count)
    ways = _worthwhile(prices, fits)
    if len(ways) == 1:
        return ways[0][2]
    best = {held: row for held, _, row in ways}
    cost, last = [0.0], [0]
    for pods in range(1, need.count + 1):
        paid, held = min([(price + cost[max(0, pods - held)], -held) for held, price, _ in ways])
        cost.append(paid)
        last.append(-held)
    pods, largest = need.count, 0
    while pods > 0:
        largest = max(largest, last[pods])
        pods -= last[pods]
    return best[largest]


def _worthwhile(prices: Prices, fits: Amounts) -> list[tuple[int, float, int]]:
    """How many pods, at which price, in which row: only those that nothing as cheap holds as many as."""
    found: list[tuple[int, float, int]] = []
    for row in np.lexsort((np.arange(len(fits)), prices, -fits)):
        if not found or prices[row] < found[-1][1]:
            found.append((int(fits[row]), float(prices[row]), int(row)))
    return found


def _fits(room: Amounts, vector: Amounts) -> Amounts:
    asked = np.flatnonzero(vector)
    return np.asarray((room[:, asked] // vector[asked]).min(axis=1), dtype=np.int64) if len(asked) else room[:, 0]


def _fit(room: Amounts, vector: Amounts) -> int:
    asked = np.flatnonzero(vector)
    return int((room[asked] // vector[asked]).min()) if len(asked) else 1 << 30


def _plain_worth(demand: Amounts) -> Prices:
    asked = demand.astype(np.float64)
    return np.divide(1.0, asked, out=np.zeros_like(asked), where=asked > 0)


def _too_small(resources: Sequence[str], room: Amounts, vector: Amounts) -> Refusal:
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
            shown = [format_amount(key, amount) for amount in (limit, max(left, 0), least)]
            return Refusal(
                f"limit {key} {shown[0]}: {shown[1]} left, the smallest instance type that fits has {shown[2]}"
            )
    return Refusal("the limits together leave no instance type that fits")
