"""A request for a new node, the options for it, and the choice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenure.model.facts import HostPort
from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.nodepool_template import Offer, Option
from tenure.scheduling.packing.topology import Rule
from tenure.scheduling.pods import Variant


@dataclass(frozen=True, slots=True, eq=False)
class NodeRequest:
    """Equal pods that fit on no existing or new node so far."""

    variant: Variant
    vector: Amounts
    count: int
    cap: int
    """The most of them that topology rules and host ports allow on one node."""
    others: Amounts
    """Remaining requests of other pod classes."""
    open_headroom: Amounts
    """Free on new nodes that these other pods can join, so that they need no larger node."""
    ports: tuple[HostPort, ...] = ()
    size: int = -1
    """The index of their requests in `CapacityValuation.sizes`; -1 without one."""
    rules: tuple[Rule, ...] = ()
    """Topology rules of the pods."""
    must_share_node: bool = False
    """All of them must run on one node."""

    @property
    def needs_more_nodes(self) -> bool:
        """Whether rules require more than one node, whatever the capacity."""
        return self.cap < self.count

    @property
    def has_use_for_others(self) -> bool:
        """Whether pods of other classes would fill the remaining capacity. Requests of 1 (pod slots) do not count."""
        return bool((self.others > self.open_headroom)[self.vector > 1].any())

    @property
    def requests_per_node(self) -> Amounts:
        """The requests of as many of these pods as one node may run."""
        return np.asarray(self.vector * min(self.count, self.cap), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class InstanceChoice:
    offer: Offer
    option: Option
    rows: Indices
    """The target type first; others only if minValues requires them."""
    headroom: Amounts
    pods: int
    """How many of the requested pods fit on one such node."""
    nodes: int
    """How many such nodes the planned mix has."""


@dataclass(slots=True)
class TypeOptions:
    """The launchable rows of an option, with capacity and price, in the columns of the pass."""

    rows: Indices
    headroom: Amounts
    useful: Amounts
    """The part of the capacity that pods can fill."""
    prices: Prices


@dataclass(frozen=True, slots=True, eq=False)
class OfferSet:
    """Offers of all pools of one weight for some pods; the arrays are row by row."""

    offers: Sequence[tuple[Offer, Option]]
    offer_index: Indices
    """The index in `offers` of each row."""
    rows: Indices
    headroom: Amounts
    useful: Amounts
    prices: Prices

    def choose_row(self, row: int) -> InstanceChoice | None:
        """The choice of one node of this row; None if limits do not allow it."""
        offer, option = self.offers[self.offer_index[row]]
        if offer.has_limits and not offer.types_within_limits(option.types)[self.rows[row]]:
            return None
        return InstanceChoice(offer, option, self.rows[[row]], self.headroom[row], 1, 1)
