"""Which pods go together on a new node, so that it is full in every resource at once.

`packing.py` asks for pods that may go anywhere. Class by class the first pods would take all the CPU of a node and
leave memory that nobody can use; here each next pod is the one after which least of what is worth money is left.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduling.priced.mixture import Kinds, Part, mixture
from scheduling.typetable import Amounts, Indices, Prices

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
