"""Replacements and their price: the rules of consolidation (reference 4.6).

A new node keeps only the instance types that are certainly cheaper than the nodes it replaces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tenure.apis.labels import CAPACITY_TYPE, ON_DEMAND, RESERVED, SPOT
from tenure.model.base import format_number
from tenure.model.disruption.decision import DisruptionSettings, TerminateFirstReason
from tenure.model.plan import PlannedNodeClaim
from tenure.model.requirements import Requirements, one_of
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import ClusterSnapshot
from tenure.scheduling.disruption.simulation import Simulation
from tenure.scheduling.instance_type_table import Indices, Mask, Prices
from tenure.scheduling.nodeclaim_builder import NodeClaimDraft, build_planned_nodeclaim
from tenure.scheduling.nodepool_template import RejectionReason
from tenure.scheduling.offerings import STRICT, find_missing_variety
from tenure.scheduling.packing.planning_pass import PackingAttempt

MIN_CHEAPER_SPOT_TYPES: Final = 15
"""The number of cheaper spot types that replacing a single spot node requires, to limit repeated replacement."""
_SPOT: Final = Requirements([one_of(CAPACITY_TYPE, SPOT)])
MIN_MULTI_NODE_SAVING: Final = 0.05
"""The share of its candidates' price that a command with more than one replacement must save."""
_PRICE_EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Replacement:
    """Result of a worthwhile simulation."""

    nodeclaims: tuple[PlannedNodeClaim, ...]
    moves: Mapping[str, str]
    """Pod UID to the name of the existing node."""
    price: float
    """Expected price in US dollars per hour."""
    at_most: float
    """Highest possible price in US dollars per hour."""
    terminate_first: TerminateFirstReason = ""
    """Why the node is deleted before its replacement is launched; empty if it is not."""


def choose_replacement(
    simulation: Simulation, snapshot: ClusterSnapshot, settings: DisruptionSettings
) -> Replacement | RejectionReason:
    """The cheapest attempt that saves enough, else why the first one does not."""
    if not simulation.attempts:
        return RejectionReason(f"cannot be disrupted: {simulation.problem}")
    try:
        results = [_evaluate_attempt(one, simulation.removals, snapshot, settings) for one in simulation.attempts]
    except Exception as error:
        return RejectionReason(f"cannot be disrupted: its replacement could not be simulated: {error!r}")
    accepted = [one for one in results if not isinstance(one, RejectionReason)]
    return min(accepted, key=lambda one: (one.price, len(one.nodeclaims))) if accepted else results[0]


def _evaluate_attempt(
    attempt: PackingAttempt, removals: Sequence[Candidate], snapshot: ClusterSnapshot, settings: DisruptionSettings
) -> Replacement | RejectionReason:
    limit = sum(one.price for one in removals)
    moves = dict(attempt.packing.nominations)
    new_node_count = len(attempt.packing.node_arrays.new_nodes)
    if not new_node_count:
        if limit <= _PRICE_EPSILON:
            return RejectionReason("it would save no more than 0 $/h")
        return Replacement((), moves, 0.0, 0.0)
    if new_node_count > len(removals):
        price = sum(attempt.planned_nodeclaims.cheapest_price(one) for one in range(new_node_count))
        costs = f"its pods would need {new_node_count} nodes for {format_number(price)} $/h"
        if price >= limit:
            return RejectionReason(f"{costs}, which is not less than {format_number(limit)}")
        return RejectionReason(f"{costs} instead of {format_number(limit)}: a command may not add nodes")
    new_nodes = [
        _new_node_options(
            attempt.planned_nodeclaims.draft(one), removals, snapshot, settings, is_single=new_node_count == 1
        )
        for one in range(new_node_count)
    ]
    rejected = next((one for one in new_nodes if isinstance(one, RejectionReason)), None)
    if rejected is not None:
        return rejected
    return _price_replacement(
        attempt, [one for one in new_nodes if isinstance(one, _NewNodeOptions)], removals, snapshot
    )


def price_limit(removals: Sequence[Candidate], *, is_multi_node: bool) -> float:
    """Price that replacements must stay below, in US dollars per hour. With `is_multi_node`, several replacements must
    save more, since many pods move."""
    paid = sum(one.price for one in removals)
    return paid - paid * MIN_MULTI_NODE_SAVING if is_multi_node else paid


@dataclass(frozen=True, slots=True)
class _NewNodeOptions:
    """Possible types of one new node, with the highest price of each."""

    draft: NodeClaimDraft
    worst_prices: Prices
    spot_for_spot: bool = False


def _new_node_options(
    draft: NodeClaimDraft,
    removals: Sequence[Candidate],
    snapshot: ClusterSnapshot,
    settings: DisruptionSettings,
    *,
    is_single: bool,
) -> _NewNodeOptions | RejectionReason:
    """If all removed nodes are spot and spot is offered, the new node must be spot, which the gate must allow. A single
    replacement of several nodes must be cheaper than each of them that has one of its types: that node could stay."""
    option = draft.option
    offered = set(draft.offer.table.capacity_types[option.offerings])
    spot_for_spot = all(one.verdict.capacity_type == SPOT for one in removals) and SPOT in offered
    if spot_for_spot and not settings.spot_to_spot:
        return RejectionReason("SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
    if spot_for_spot:
        restricted = draft.offer.restrict_to(option, _SPOT)
        if isinstance(restricted, RejectionReason):
            return restricted
        draft = replace(draft, option=restricted, rows=draft.rows[restricted.types[draft.rows]])
    worst = get_worst_prices(draft, snapshot)[draft.rows]
    if is_single and len(removals) > 1:
        is_cheaper = worst < _cheapest_removed_of_same_type(draft, removals)
        draft, worst = replace(draft, rows=draft.rows[is_cheaper]), worst[is_cheaper]
        if not len(draft.rows):
            return RejectionReason("its replacement would have the type of one of these nodes, which can stay instead")
    return _NewNodeOptions(draft, worst, spot_for_spot)


def _cheapest_removed_of_same_type(draft: NodeClaimDraft, removals: Sequence[Candidate]) -> float:
    """The lowest price of a removed node of the same type: at or above it, the replacement is the same node again."""
    names = {draft.offer.table.names[row] for row in draft.rows}
    return min(
        (one.price for one in removals if one.instance_type is not None and one.instance_type.name in names),
        default=np.inf,
    )


def _price_replacement(
    attempt: PackingAttempt,
    new_nodes: Sequence[_NewNodeOptions],
    removals: Sequence[Candidate],
    snapshot: ClusterSnapshot,
) -> Replacement | RejectionReason:
    """Each new node may launch as any type below its share of the current price."""
    limit = price_limit(removals, is_multi_node=len(new_nodes) > 1)
    least = [float(one.worst_prices.min()) for one in new_nodes]
    slack = limit - sum(least)
    if slack <= _PRICE_EPSILON:
        paid = sum(one.price for one in removals)
        than = format_number(limit) + (f", {format_number(paid)} less the required savings" if limit < paid else "")
        cost = format_number(sum(least))
        return RejectionReason(
            f"Can't replace with a cheaper node: it would cost {cost} $/h, which is not less than {than}"
        )
    nodeclaims, at_most, price = list[PlannedNodeClaim](), 0.0, 0.0
    for number, (one, base) in enumerate(zip(new_nodes, least, strict=True)):
        share = slack * (base + _PRICE_EPSILON) / (sum(least) + _PRICE_EPSILON * len(least))
        built = _build_replacement_nodeclaim(
            attempt, number, one, base + share, single=len(removals) == 1, snapshot=snapshot
        )
        if isinstance(built, RejectionReason):
            return built
        nodeclaims.append(built[0])
        price, at_most = price + built[1], at_most + built[2]
    return Replacement(tuple(nodeclaims), dict(attempt.packing.nominations), price, at_most)


def _build_replacement_nodeclaim(
    attempt: PackingAttempt,
    number: int,
    new_node: _NewNodeOptions,
    below: float,
    *,
    single: bool,
    snapshot: ClusterSnapshot,
) -> tuple[PlannedNodeClaim, float, float] | RejectionReason:
    """The NodeClaim, its expected price and its highest price."""
    pass_settings, draft = (
        snapshot.pass_settings,
        replace(new_node.draft, rows=new_node.draft.rows[new_node.worst_prices < below]),
    )
    needs_variety = single and new_node.spot_for_spot
    if needs_variety and len(draft.rows) < MIN_CHEAPER_SPOT_TYPES:
        return RejectionReason(
            f"only {len(draft.rows)} spot instance types are cheaper: replacing spot by spot requires "
            f"{MIN_CHEAPER_SPOT_TYPES}, to limit repeated replacement and interruption"
        )
    if not new_node.spot_for_spot:
        draft = _restrict_to_spot(draft)
    most = (
        max(MIN_CHEAPER_SPOT_TYPES, _min_values_type_count(draft, snapshot))
        if needs_variety
        else pass_settings.most_instance_types
    )
    draft = replace(draft, rows=draft.rows[:most])
    missing = find_missing_variety(draft.offer.table, draft.option.requirements, draft.rows)
    if missing and pass_settings.min_values_policy == STRICT:
        return RejectionReason(f"the cheaper types do not satisfy minValues: {missing}")
    new_node_slot = attempt.packing.node_arrays.new_nodes[number]
    nodeclaim = build_planned_nodeclaim(draft, tuple(new_node_slot.pods), pass_settings.min_values_policy, most)
    if isinstance(nodeclaim, RejectionReason):
        return nodeclaim
    worst = get_worst_prices(draft, snapshot)[draft.rows]
    return nodeclaim, float(draft.offer.cheapest_prices(draft.option)[draft.rows].min()), float(worst.max())


def _restrict_to_spot(draft: NodeClaimDraft) -> NodeClaimDraft:
    """Exclude on-demand if spot is available, since it might cost more than the replaced nodes."""
    if draft.option.reservation:
        return draft
    restricted = draft.offer.restrict_to(draft.option, _SPOT)
    if isinstance(restricted, RejectionReason):
        return draft
    rows = draft.rows[restricted.types[draft.rows]]
    return replace(draft, option=restricted, rows=rows) if len(rows) else draft


def _min_values_type_count(draft: NodeClaimDraft, snapshot: ClusterSnapshot) -> int:
    """The number of cheapest types that satisfy minValues."""
    if snapshot.pass_settings.min_values_policy != STRICT or not any(
        one.min_values for one in draft.option.requirements.values()
    ):
        return 0
    table, requirements = draft.offer.table, draft.option.requirements
    counts = (
        number
        for number in range(1, len(draft.rows) + 1)
        if not find_missing_variety(table, requirements, draft.rows[:number])
    )
    return next(counts, len(draft.rows))


def get_worst_prices(draft: NodeClaimDraft, snapshot: ClusterSnapshot) -> Prices:
    """The highest launch price by type. A launch requests reserved capacity, then spot, then on-demand. EC2 may choose
    the most expensive zone."""
    option = draft.option
    key = draft.offer.pool_name, option.requirements, option.reservation
    known = snapshot.worst_prices.get(key)
    if known is None:
        known = snapshot.worst_prices[key] = _compute_worst_prices(draft, snapshot)
    return known


def _compute_worst_prices(draft: NodeClaimDraft, snapshot: ClusterSnapshot) -> Prices:
    table, option = draft.offer.table, draft.option
    offered = table.offerings_with(option.requirements) & snapshot.available_offerings(draft.offer)
    if not option.reservation:
        offered = offered & ~table.reserved
    worst = np.full(len(table), np.inf)
    for capacity_type in (ON_DEMAND, SPOT, RESERVED):
        chosen: Mask = offered & np.asarray(table.capacity_types == capacity_type, dtype=bool)
        rows: Indices = table.offering_rows[chosen]
        most_expensive = np.full(len(table), -np.inf)
        np.maximum.at(most_expensive, rows, table.offering_prices[chosen])
        worst = np.where(np.isfinite(most_expensive), most_expensive, worst)
    return worst
