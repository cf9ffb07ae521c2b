"""A planned node as a NodeClaim (reference 2.12), with the reason for its launch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tenure.apis import labels
from tenure.apis.resources import PODS
from tenure.model.base import format_count, format_number
from tenure.model.blockers import MIN_VALUES
from tenure.model.facts import Expression, PodFact
from tenure.model.plan import PlannedNodeClaim
from tenure.model.requirements import Requirements, one_of
from tenure.scheduling.instance_type_table import Amounts, Indices, Mask
from tenure.scheduling.nodeclaim_template import plan_from_template
from tenure.scheduling.nodepool_requirements import nodeclaim_expressions
from tenure.scheduling.nodepool_template import Offer, Option, RejectionReason
from tenure.scheduling.offerings import STRICT, find_missing_variety
from tenure.scheduling.settings import MAX_INSTANCE_TYPES


@dataclass(frozen=True, slots=True, eq=False)
class NodeClaimDraft:
    """The pods of a new node, and the instance types that fit it."""

    offer: Offer
    option: Option
    used: Amounts
    """Requests of the pods without DaemonSets, in the columns of the pool's table."""
    rows: Indices
    """The possible instance types, as rows of the pool's table."""


def build_planned_nodeclaim(
    draft: NodeClaimDraft, pods: tuple[str, ...], min_values_policy: str = STRICT, max_types: int = MAX_INSTANCE_TYPES
) -> PlannedNodeClaim | RejectionReason:
    """The NodeClaim for a draft, or why its cheapest `max_types` instance types do not satisfy minValues."""
    pool, table = draft.offer.template.pool, draft.offer.table
    rows = sort_rows_by_price(draft)[:max_types]
    missing = find_missing_variety(table, draft.option.requirements, rows)
    if missing and min_values_policy == STRICT:
        return RejectionReason(f"minValues cannot be kept with {max_types} instance types: {missing}", MIN_VALUES)
    requirements = _relax_min_values(draft, rows) if missing else draft.option.requirements
    nodeclaim = plan_from_template(
        pool,
        requirements.without(labels.NODE_NAME_FIELD),
        _nodeclaim_requirements(draft, requirements, rows),
        relaxed=bool(missing),
    )
    return with_device_drivers(
        nodeclaim.model_copy(
            update={
                "annotations": nodeclaim.annotations | _overlay_annotations(draft, rows),
                "requests": _nodeclaim_requests(draft, rows),
                "devices": draft.offer.table.to_devices(draft.used),
                "pods": pods,
                "capacity_bound": draft.offer.max_capacity(rows),
            }
        ),
        draft,
        rows,
    )


def with_device_drivers(nodeclaim: PlannedNodeClaim, draft: NodeClaimDraft, rows: Indices) -> PlannedNodeClaim:
    """The NodeClaim with the annotation that names the DRA drivers of its devices."""
    if not draft.offer.table.devices:
        return nodeclaim
    drivers = draft.offer.table.find_device_drivers(nodeclaim.devices, rows)
    own = {labels.REQUESTED_DRA_DRIVERS: ",".join(drivers)} if drivers else {}
    others = {key: value for key, value in nodeclaim.annotations.items() if key != labels.REQUESTED_DRA_DRIVERS}
    return nodeclaim.model_copy(update={"annotations": others | own})


def sort_rows_by_price(draft: NodeClaimDraft) -> Indices:
    """The types of a draft by the price of their cheapest available offering; equal prices by name."""
    prices = draft.offer.cheapest_prices(draft.option)[draft.rows]
    return draft.rows[np.lexsort((draft.rows, prices))]


def _nodeclaim_requests(draft: NodeClaimDraft, rows: Indices) -> dict[str, int]:
    """Requests of the pods, plus the smallest DaemonSet overhead of any type (reference 2.9)."""
    least = draft.offer.template.overhead[rows].min(axis=0)
    return draft.offer.table.to_amounts(draft.used + least)


def _nodeclaim_requirements(draft: NodeClaimDraft, requirements: Requirements, rows: Indices) -> tuple[Expression, ...]:
    """All requirements, with the instance types in order of price and the available capacity types."""
    table = draft.offer.table
    types = _types_expression(requirements, [table.names[row] for row in rows])
    offered = _available_offerings(draft, rows)
    capacity = one_of(labels.CAPACITY_TYPE, *sorted(set(table.capacity_types[offered])))
    if labels.CAPACITY_TYPE in requirements:
        capacity = requirements[labels.CAPACITY_TYPE].intersection(capacity)
        if len(capacity.values) < (capacity.min_values or 0):
            capacity = requirements[labels.CAPACITY_TYPE]
    return nodeclaim_expressions(
        requirements.without(labels.INSTANCE_TYPE, labels.CAPACITY_TYPE), types, *capacity.expressions()
    )


def _available_offerings(draft: NodeClaimDraft, rows: Indices) -> Mask:
    """The available offerings of these types."""
    chosen = np.zeros(len(draft.offer.table), dtype=bool)
    chosen[rows] = True
    return np.asarray(draft.option.offerings & chosen[draft.offer.table.offering_rows], dtype=bool)


def _overlay_annotations(draft: NodeClaimDraft, rows: Indices) -> dict[str, str]:
    """Annotations for NodeOverlays that changed its price or capacity (reference 1.3)."""
    table = draft.offer.table
    applied_by_key = {
        labels.PRICE_OVERLAY_APPLIED: bool(table.overlaid_prices[_available_offerings(draft, rows)].any()),
        labels.CAPACITY_OVERLAY_APPLIED: bool(table.overlaid_capacity[rows].any()),
    }
    return {key: "true" for key, applied in applied_by_key.items() if applied}


def _types_expression(requirements: Requirements, names: list[str]) -> Expression:
    known = requirements.get(labels.INSTANCE_TYPE)
    return Expression(
        key=labels.INSTANCE_TYPE, operator="In", values=tuple(names), min_values=known.min_values if known else None
    )


def _relax_min_values(draft: NodeClaimDraft, rows: Indices) -> Requirements:
    """MIN_VALUES_POLICY=BestEffort: lower each minValues to the number that the types reach, and to 1 at least."""
    table = draft.offer.table
    return Requirements(
        requirement
        if requirement.min_values is None
        else replace(
            requirement, min_values=max(1, min(requirement.min_values, table.count_distinct_values(requirement, rows)))
        )
        for requirement in draft.option.requirements.values()
    )


_MAX_NAMED: Final = 3


def describe_launch_reason(draft: NodeClaimDraft, pods: Sequence[PodFact], existing_node_count: int) -> str:
    """Pods, pool, expected type, price in US dollars per hour, and utilization of a new node.

    The types of the draft must be cheapest first.
    """
    rows, priced = draft.rows, _format_prices(draft)
    existing = f"no room on {format_count(existing_node_count, 'existing node')}"
    among = f"the cheapest of {len(rows)} instance types" if len(rows) > 1 else "the only instance type"
    return (
        f"{_format_pod_names(pods)}: {existing if existing_node_count else 'no existing nodes'}; "
        f"{priced[0]} $/h is {among} of NodePool {draft.offer.pool_name} that fit{'' if len(rows) > 1 else 's'}; "
        f"{_format_utilization(draft, int(rows[0]))}{_format_alternatives(priced[1:])}"
    )


def _format_prices(draft: NodeClaimDraft) -> list[str]:
    """The cheapest types, each with its price."""
    prices, names = draft.offer.cheapest_prices(draft.option), draft.offer.table.names
    return [f"{names[row]} at {format_number(float(prices[row]))}" for row in draft.rows[:_MAX_NAMED]]


def _format_alternatives(priced: Sequence[str]) -> str:
    """The next best options after the chosen one."""
    return f"; next: {', '.join(priced)}" if priced else ""


def _format_pod_names(pods: Sequence[PodFact]) -> str:
    names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:_MAX_NAMED])
    more = len(pods) - _MAX_NAMED
    return f"{len(pods)} pods ({names} and {more} more)" if more > 0 else names


def _format_utilization(draft: NodeClaimDraft, row: int) -> str:
    """Percent of the capacity without DaemonSet overhead."""
    table, headroom = draft.offer.table, draft.option.headroom[row]
    requested = [(key, column) for key, column in table.columns.items() if draft.used[column] and key != PODS]
    shares = [f"{round(100 * int(draft.used[column]) / int(headroom[column]))} % {key}" for key, column in requested]
    return f"used: {', '.join(shares)}" if shares else "its pods have no requests"
