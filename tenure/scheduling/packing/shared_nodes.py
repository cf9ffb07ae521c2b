"""Which pods go together on a new node, so that it is full in every resource at once.

`packing.py` asks for pods that may go anywhere. Class by class the first pods would take all the CPU of a node and
leave memory that nobody can use; here each next pod is the one after which least of what is worth money is left.

New nodes that pods of many classes share: those that may go anywhere, so that no rule decides who goes with whom.

`packing.py` hands such pods over when they found no room on what stands or is bought already. First the nodes of the
cheapest mix are bought (`mixture.py`), each filled as the mix means it (`blending.py`); then for the rest, which is
less than a node of anything in the mix, one node after the other as `buying.py` chooses.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final

import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.packing.instance_mix import Kinds, Part, mixture
from tenure.scheduling.packing.instance_selection import Buyer
from tenure.scheduling.packing.node_requests import Choice, Need, Stock
from tenure.scheduling.packing.nodes import Places
from tenure.scheduling.packing.pod_classes import PodClass
from tenure.scheduling.packing.pod_requirements import NO_VOLUMES, Variant
from tenure.scheduling.packing.topology import UNLIMITED

_WELL: Final = 0.95
"""A planned node is bought when so much of its price is used."""
_ENOUGH: Final = 256
"""So many classes, of all sizes, are enough to choose the next pod from."""

Recipe = dict[int, int]
"""Classes by number, with how many of their pods go on one node."""


class Blend:
    """Classes that may share nodes: `counts` pods each, of the sizes in `vectors`, in the order of their queue."""

    def __init__(self, vectors: Amounts, counts: Sequence[int]) -> None:
        self._vectors = vectors
        self.left: Amounts = np.array(counts, dtype=np.int64)

    def mixture(self, room: Amounts, prices: Prices) -> tuple[Kinds, list[Part]]:
        """The cheapest mix for what is left, of rows with so much room."""
        return mixture(room, prices, self._vectors, self.left)

    def meant(self, kinds: Kinds, part: Part, room: Amounts, owed: Prices) -> Recipe:
        """What goes on a node of the mix; empty when too much of it would stay unused. `owed` of each kind to earlier
        nodes, since pods are whole."""
        free, taken = room.copy(), Recipe()
        self._fill(free, part.worth, taken, kinds, owed + part.budgets)
        self._fill(free, part.worth, taken)
        used = float((room - free) @ part.worth)
        return taken if used >= _WELL * float(room @ part.worth) else {}

    def filling(self, room: Amounts, worth: Prices) -> Recipe:
        """What goes on any node with so much room."""
        taken = Recipe()
        scale = worth if worth.any() else np.divide(1.0, room, out=np.zeros(len(room)), where=room > 0)
        self._fill(room.copy(), scale, taken)
        return taken

    def times(self, recipe: Recipe) -> int:
        """How many such nodes the pods suffice for."""
        return min(int(self.left[one]) // count for one, count in recipe.items())

    def take(self, recipe: Recipe, times: int) -> None:
        for one, count in recipe.items():
            self.left[one] -= count * times

    def _fill(
        self, free: Amounts, worth: Prices, taken: Recipe, kinds: Kinds | None = None, budgets: Prices | None = None
    ) -> None:
        """Pod by pod, the one after which least is left: of |free - pod|², what differs between pods."""
        among = np.flatnonzero(self.left)
        if kinds is not None and budgets is not None:
            among = among[budgets[kinds.of[among]] >= kinds.sizes[among] / 2]
        among = self._fitting(among, free, taken)
        among = among[:: 1 + len(among) // _ENOUGH]
        values = self._vectors[among] * worth
        squares = (values * values).sum(axis=1)
        while len(among):
            best = int(among[np.argmin(squares - 2.0 * (values @ (free * worth)))])
            taken[best] = taken.get(best, 0) + 1
            free -= self._vectors[best]
            fine = (self._vectors[among] <= free).all(axis=1)
            if kinds is not None and budgets is not None:
                budgets[kinds.of[best]] -= kinds.sizes[best]
                fine &= budgets[kinds.of[among]] >= kinds.sizes[among] / 2
            if taken[best] >= self.left[best]:
                fine &= among != best
            among, values, squares = among[fine], values[fine], squares[fine]

    def _fitting(self, among: Indices, free: Amounts, taken: Recipe) -> Indices:
        among = among[(self._vectors[among] <= free).all(axis=1)]
        spent = [one for one, count in taken.items() if count >= self.left[one]]
        return among[~np.isin(among, spent)] if spent else among


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
