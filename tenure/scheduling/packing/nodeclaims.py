"""New nodes as NodeClaims, with every instance type that could replace the target. Equal ones are built once.

A NodeClaim counts against the limits of its NodePool as the largest of its types, in each resource (reference 2.11).
While a plan is made, each new node counts as its target type. The rest of the limits then goes to larger types: one cap
per resource for all new nodes of the NodePool, so that equal nodes keep equal types. The cap is the largest capacity
with which the NodeClaims together stay within the limits. A node keeps its target type, even above the cap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tenure.model.facts import PodFact
from tenure.model.plan import PlannedNodeClaim
from tenure.scheduling.instance_type_table import Amounts, Indices
from tenure.scheduling.nodeclaim_builder import (
    NodeClaimDraft,
    build_planned_nodeclaim,
    describe_launch_reason,
    sort_rows_by_price,
    with_device_drivers,
)
from tenure.scheduling.nodepool_template import Offer, RejectionReason
from tenure.scheduling.packing.nodes import NodeArrays, NodeSlot


@dataclass(frozen=True, slots=True, eq=False)
class NodeTypes:
    """Instance types of a new node, as rows of the table."""

    target_rows: Indices
    """The types that the plan counted."""
    fitting_rows: Indices
    """The types with room for its pods, cheapest first."""

    def rows_within(self, offer: Offer, caps: Mapping[str, int]) -> Indices:
        """The fitting types that are no larger than the caps or the target types."""
        rows = self.fitting_rows
        for key, cap in caps.items():
            column = offer.table.capacity[:, offer.table.columns[key]]
            rows = rows[column[rows] <= max(cap, self.target_amount(column))]
        return rows

    def target_amount(self, column: Amounts) -> int:
        return int(column[self.target_rows].max())


def capacity_caps(offer: Offer, nodes: Sequence[NodeTypes], max_types: int) -> dict[str, int]:
    """By limited resource, the largest capacity that each new node may have; empty if the limits exclude no type.

    `nodes`: all new nodes of the offer, which count against its limits as their target types. A NodeClaim names its
    `max_types` cheapest types.
    """
    limited = {
        key: offer.table.capacity[:, offer.table.columns[key]]
        for key in offer.remaining_limits.limits
        if key in offer.table.columns
    }
    allowed = {
        key: (offer.remaining_limits.remaining(key) or 0) + sum(one.target_amount(column) for one in nodes)
        for key, column in limited.items()
    }
    if all(_widest_total(column, nodes, max_types) <= allowed[key] for key, column in limited.items()):
        return {}
    return {key: _largest_cap(column, nodes, allowed[key]) for key, column in limited.items()}


def _widest_total(column: Amounts, nodes: Sequence[NodeTypes], max_types: int) -> int:
    """The total if each node gets the largest type that its NodeClaim names without limits."""
    return sum(int(column[np.append(one.target_rows, one.fitting_rows[:max_types])].max()) for one in nodes)


def _largest_cap(column: Amounts, nodes: Sequence[NodeTypes], allowed: int) -> int:
    """The largest capacity of any type with which the nodes together stay within `allowed`; 0 without one."""
    caps = np.unique(column)
    totals = np.zeros(len(caps), dtype=np.int64)
    for one in nodes:
        fitting = np.append(0, np.unique(column[one.fitting_rows]))
        totals += np.maximum(fitting[np.searchsorted(fitting, caps, side="right") - 1], one.target_amount(column))
    return int(caps[totals <= allowed].max(initial=0))


class PlannedNodeClaims:
    """The claims of one pass."""

    def __init__(
        self, node_arrays: NodeArrays, pods: Mapping[str, PodFact], min_values_policy: str, max_types: int
    ) -> None:
        self._node_arrays, self._pods = node_arrays, pods
        self._min_values_policy, self._max_types = min_values_policy, max_types
        self._cached: dict[tuple[int, bytes], tuple[PlannedNodeClaim, Amounts] | RejectionReason] = {}
        self._sorted_rows: dict[int, Indices] = {}
        self._limited_rows: dict[int, Indices] = {}
        """By number of a new node whose NodePool has limits; empty until the first is requested."""

    def build(self, number: int) -> PlannedNodeClaim | RejectionReason:
        """The NodeClaim for a new node, or why it is not possible."""
        new_node, draft = self._node_arrays.new_nodes[number], self.draft(number)
        key = new_node.slot, draft.rows.tobytes()
        cached = self._cached.get(key)
        if cached is None:
            cached = self._cached[key] = self._build_shared(draft)
        if isinstance(cached, RejectionReason):
            return cached
        nodeclaim, daemons = cached
        own = {
            "requests": draft.offer.table.to_amounts(draft.used + daemons),
            "devices": draft.offer.table.to_devices(draft.used),
            "pods": tuple(new_node.pods),
            "why": describe_launch_reason(
                draft, [self._pods[uid] for uid in new_node.pods], self._node_arrays.existing_count
            ),
        }
        return with_device_drivers(nodeclaim.model_copy(update=own), draft, draft.rows[: self._max_types])

    def cheapest_price(self, number: int) -> float:
        """US dollars per hour of the cheapest type that a new node may get."""
        draft = self.draft(number)
        return float(draft.offer.cheapest_prices(draft.option)[draft.rows[0]])

    def draft(self, number: int) -> NodeClaimDraft:
        """The pods and types of a new node, cheapest type first."""
        new_node = self._node_arrays.new_nodes[number]
        slot = self._node_arrays.slots[new_node.slot]
        used = self._used_amounts(slot, number)
        has_limits = slot.offer.has_limits
        rows = self._rows_within_limits(slot.offer, number) if has_limits else self._fitting_rows(number, used)
        return NodeClaimDraft(slot.offer, slot.option, used, rows)

    def _build_shared(self, draft: NodeClaimDraft) -> tuple[PlannedNodeClaim, Amounts] | RejectionReason:
        """The NodeClaim, with the smallest DaemonSet overhead of any of its types (reference 2.9)."""
        nodeclaim = build_planned_nodeclaim(draft, (), self._min_values_policy, self._max_types)
        if isinstance(nodeclaim, RejectionReason):
            return nodeclaim
        return nodeclaim, draft.offer.template.overhead[draft.rows[: self._max_types]].min(axis=0)

    def _rows_by_price(self, number: int) -> Indices:
        """All types of a slot, cheapest first."""
        known = self._sorted_rows.get(number)
        if known is None:
            slot = self._node_arrays.slots[number]
            every = NodeClaimDraft(
                slot.offer, slot.option, np.zeros(0, dtype=np.int64), np.flatnonzero(slot.option.types)
            )
            known = self._sorted_rows[number] = sort_rows_by_price(every)
        return known

    def _used_amounts(self, slot: NodeSlot, number: int) -> Amounts:
        used = self._node_arrays.used_amounts(number)
        return used[[self._node_arrays.columns[key] for key in slot.offer.table.resources]]

    def _fitting_rows(self, number: int, used: Amounts) -> Indices:
        """The types with room for the pods of a new node, cheapest first."""
        new_node = self._node_arrays.new_nodes[number]
        slot = self._node_arrays.slots[new_node.slot]
        rows = self._rows_by_price(new_node.slot)
        fitting = (slot.option.headroom[rows] >= used).all(axis=1)
        if new_node.ports:
            fitting &= slot.offer.template.types_with_free_ports(new_node.ports)[rows]
        if new_node.allowed_types is not None:
            fitting &= new_node.allowed_types[rows]
        return rows[fitting]

    def _rows_within_limits(self, offer: Offer, number: int) -> Indices:
        """The fitting types that the limits leave room for on this node and all other new nodes of the NodePool."""
        if number not in self._limited_rows:
            nodes = {
                other: NodeTypes(new_node.rows, self._fitting_rows(other, self._used_amounts(slot, other)))
                for other, new_node in enumerate(self._node_arrays.new_nodes)
                if (slot := self._node_arrays.slots[new_node.slot]).offer is offer
            }
            caps = capacity_caps(offer, list(nodes.values()), self._max_types)
            self._limited_rows |= {other: types.rows_within(offer, caps) for other, types in nodes.items()}
        return self._limited_rows[number]
