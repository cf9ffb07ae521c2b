"""What is asked for when a node is to be bought, what there is to choose from, and what is chosen.

Between `packing.py` and `sharing.py`, which ask, and `buying.py`, which answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenure.model.facts import HostPort
from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.nodepool_template import Offer, Option
from tenure.scheduling.packing.pod_requirements import Variant


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """Equal pods that found no place."""

    variant: Variant
    vector: Amounts
    count: int
    cap: int
    """The most of them that rules let on one node."""
    others: Amounts
    """What pods of other classes still ask for."""
    open_room: Amounts
    """Left on bought nodes that those others can join: no reason to buy more for them."""
    ports: tuple[HostPort, ...] = ()
    size: int = -1
    """Which of the buyer's sizes they are; -1 where it knows none."""
    together: bool = False
    """All of them have to be on one node."""

    @property
    def forced(self) -> bool:
        """A node is needed even where room is not."""
        return self.cap < self.count

    @property
    def for_others(self) -> bool:
        """Pods of other classes would fill what these leave. Slots for pods alone are no matter: ones do not count."""
        return bool((self.others > self.open_room)[self.vector > 1].any())

    @property
    def own(self) -> Amounts:
        """What one node can be asked for by them."""
        return np.asarray(self.vector * min(self.count, self.cap), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Choice:
    offer: Offer
    option: Option
    rows: Indices
    """The target first; the others only where minValues asks for variety."""
    room: Amounts
    pods: int
    """How many of the pods asked for go on one such node."""
    nodes: int
    """How many such nodes the mix has in mind."""


@dataclass(slots=True)
class Shelf:
    """An offer's option as arrays in the plan's columns: what may be bought, with room and price."""

    rows: Indices
    room: Amounts
    useful: Amounts
    """Of the room what pods can fill."""
    prices: Prices


@dataclass(frozen=True, slots=True, eq=False)
class Stock:
    """What the pools of one weight sell to some pods, row by row."""

    offers: Sequence[tuple[Offer, Option]]
    of: Indices
    """Which of the offers a row is of."""
    rows: Indices
    room: Amounts
    useful: Amounts
    prices: Prices

    def choice(self, row: int) -> Choice | None:
        """To buy such a node; None when a limit forbids it."""
        offer, option = self.offers[self.of[row]]
        if offer.limited and not offer.within_limits(option.types)[self.rows[row]]:
            return None
        return Choice(offer, option, self.rows[[row]], self.room[row], 1, 1)
