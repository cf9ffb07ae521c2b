"""New nodes that pods of many classes share: those that may go anywhere, so that no rule decides who goes with whom.

`packing.py` hands such pods over when they found no room on what stands or is bought already. First the nodes of the
cheapest mix are bought (`mixture.py`), each filled as the mix means it (`blending.py`); then for the rest, which is
less than a node of anything in the mix, one node after the other as `buying.py` chooses.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final

import numpy as np

from scheduling.priced.blending import Blend, Recipe
from scheduling.priced.buying import Buyer
from scheduling.priced.classes import PodClass
from scheduling.priced.demand import NO_VOLUMES, Variant
from scheduling.priced.mixture import Kinds, Part
from scheduling.priced.needs import Choice, Need, Stock
from scheduling.priced.places import Places
from scheduling.priced.topology import UNLIMITED
from scheduling.typetable import Amounts

_ROUNDS: Final = 4
"""Whole pods do not always fill a node as parts do: then a new mix is made for what is left."""

Put = Callable[[PodClass, Variant, Amounts, int, int], None]
"""So many pods of a class, with their reading and size, on a place."""


class Sharing:
    def __init__(self, places: Places, buyer: Buyer, put: Put, classes: Sequence[PodClass]) -> None:
        """The first readings of the `classes` have one variant and no rules."""
        self._places, self._buyer, self._put, self._classes = places, buyer, put, classes
        self._variant = classes[0].readings[0].variant
        self._vectors = [places.vector(one.requests) for one in classes]
        self._blend = Blend(np.array(self._vectors), [len(one.pods) for one in classes])

    def buy(self) -> None:
        """Until all have a place or nothing more can be bought for them. A pool of less weight sells only what those
        before it do not."""
        for stock in self._buyer.stocks(self._variant):
            self._by_mixture(stock)
            self._one_by_one({id(offer) for offer, _ in stock.offers})
        self._one_by_one()

    def _one_by_one(self, among: Set[int] | None = None) -> None:
        """Node after node as `buying.py` chooses. Pods for which it chooses a pool that is not `among` these wait."""
        for number, lead in enumerate(self._classes):
            while self._blend.left[number]:
                choice = self._choice(lead, self._vectors[number])
                if choice is None or (among is not None and id(choice.offer) not in among):
                    break
                recipe = self._blend.filling(choice.room, self._buyer.appraisal.worth(choice.offer))
                self._fill(choice, recipe, 1 if choice.offer.limited else choice.nodes)

    def _choice(self, lead: PodClass, vector: Amounts) -> Choice | None:
        others = np.maximum(self._buyer.demand - vector * len(lead.pods), 0)
        room = self._places.open_room(self._variant)
        need = Need(self._variant, vector, len(lead.pods), UNLIMITED, others, room, size=lead.size)
        choice = self._buyer.choose(need)
        return choice if isinstance(choice, Choice) else None

    def _by_mixture(self, stock: Stock) -> None:
        for _ in range(_ROUNDS):
            if not self._blend.left.any():
                return
            kinds, parts = self._blend.mixture(stock.useful, stock.prices)
            if not sum(self._buy_part(stock, kinds, part) for part in parts):
                return

    def _buy_part(self, stock: Stock, kinds: Kinds, part: Part) -> int:
        """How many of its nodes are bought: fewer than it has when a limit ends it, or pods no longer fill one."""
        left, owed = part.nodes, np.zeros_like(part.budgets)
        while left:
            choice = stock.choice(part.row)
            recipe = self._blend.meant(kinds, part, choice.room, owed) if choice else {}
            if not choice or not recipe:
                break
            times = self._fill(choice, recipe, 1 if choice.offer.limited else left)
            left -= times
            owed += times * (part.budgets - kinds.amounts(recipe))
        return part.nodes - left

    def _fill(self, choice: Choice, recipe: Recipe, most: int) -> int:
        """Equal nodes, as many as the pods suffice for; how many."""
        times = min(most, self._blend.times(recipe))
        self._blend.take(recipe, times)
        for _ in range(times):
            place = bought(self._places, self._buyer, choice)
            for one, share in recipe.items():
                self._put(self._classes[one], self._variant, self._vectors[one], place, share)
        return times


def bought(places: Places, buyer: Buyer, choice: Choice) -> int:
    """One such node, as a new place."""
    choice.offer.spend(choice.rows)
    buyer.appraisal.bought(choice)
    if choice.option.reservation:
        choice.offer.rooms.take(choice.option.reservation, 1)
    return places.buy(choice.offer, choice.option, choice.rows, choice.room)


def anywhere(one: PodClass) -> bool:
    """No rule says where they go but what they ask of a node."""
    return not one.readings[0].rules and not one.ports and one.volumes is NO_VOLUMES


def by_reading(classes: Iterable[PodClass]) -> Iterator[list[PodClass]]:
    """Those that read alike together, those that ask for most first."""
    found: dict[Variant, list[PodClass]] = {}
    for one in classes:
        found.setdefault(one.readings[0].variant, []).append(one)
    yield from sorted(found.values(), key=lambda alike: -len(alike[0].readings[0].variant.requirements))
