"""The instance types that new nodes may have within the limits of their NodePool.

A NodeClaim counts against the limits as the largest of its types, in each resource (reference 2.11). While a plan is
made, each new node counts as its target type. The rest of the limits then goes to larger types: one cap per resource
for all new nodes of the NodePool, so that equal nodes keep equal types. The cap is the largest capacity with which the
NodeClaims together stay within the limits. A node keeps its target type, even above the cap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices
from tenure.scheduling.nodepool_template import Offer


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
