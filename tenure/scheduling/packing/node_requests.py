"""A request for a new node, the options for it, and the choice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenure.model.facts import HostPort
from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.nodepool_template import Offer, Option
from tenure.scheduling.pods import Variant


@dataclass(frozen=True, slots=True, eq=False)
class NodeRequest:
    """Equal pods that found no place."""

    variant: Variant
    vector: Amounts
    count: int
    cap: int
    """The most of them that rules let on one node."""
    others: Amounts
    """Remaining requests of other pod classes."""
    open_headroom: Amounts
    """Left on bought nodes that those others can join: no reason to buy more for them."""
    ports: tuple[HostPort, ...] = ()
    size: int = -1
    """Which of the buyer's sizes they are; -1 where it knows none."""
    must_share_node: bool = False
    """All of them have to be on one node."""

    @property
    def needs_more_nodes(self) -> bool:
        """A node is needed even where room is not."""
        return self.cap < self.count

    @property
    def has_use_for_others(self) -> bool:
        """Pods of other classes would fill the leftover capacity. Pod slots are ignored: ones do not count."""
        return bool((self.others > self.open_headroom)[self.vector > 1].any())

    @property
    def requests_per_node(self) -> Amounts:
        """The pods' possible requests of one node."""
        return np.asarray(self.vector * min(self.count, self.cap), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class InstanceChoice:
    offer: Offer
    option: Option
    rows: Indices
    """The target first; the others only where minValues asks for variety."""
    headroom: Amounts
    pods: int
    """How many of the pods asked for go on one such node."""
    nodes: int
    """How many such nodes the mix has in mind."""


@dataclass(slots=True)
class TypeOptions:
    """An offer's option as arrays in the plan's columns: rows to launch, with capacity and price."""

    rows: Indices
    headroom: Amounts
    useful: Amounts
    """The part of the capacity that pods can fill."""
    prices: Prices


@dataclass(frozen=True, slots=True, eq=False)
class OfferSet:
    """Offers of the pools of one weight to some pods, row by row."""

    offers: Sequence[tuple[Offer, Option]]
    offer_index: Indices
    """Which of the offers a row is of."""
    rows: Indices
    headroom: Amounts
    useful: Amounts
    prices: Prices

    def choose_row(self, row: int) -> InstanceChoice | None:
        """The choice of a node of this row; None if a limit forbids it."""
        offer, option = self.offers[self.offer_index[row]]
        if offer.has_limits and not offer.types_within_limits(option.types)[self.rows[row]]:
            return None
        return InstanceChoice(offer, option, self.rows[[row]], self.headroom[row], 1, 1)
