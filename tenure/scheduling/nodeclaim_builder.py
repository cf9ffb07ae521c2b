"""A filled node as the NodeClaim that is to be made for it (reference 2.12).

The last step after `tenure/scheduling/packing/packer.py`; `controller/` gives the claim its name and creates it.

Why a node is bought, in a sentence that stays with its NodeClaim and with its workflow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tenure.apis.hash import HASH_VERSION
from tenure.apis.labels import (
    CAPACITY_OVERLAY_APPLIED,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODECLAIM_MIN_VALUES_RELAXED,
    NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION,
    PRICE_OVERLAY_APPLIED,
)
from tenure.apis.resources import PODS
from tenure.model.facts import Expression, PodFact
from tenure.model.provisioning import PlannedClaim
from tenure.model.requirements import Requirements, one_of
from tenure.scheduling.instance_type_table import Amounts, Indices, Mask
from tenure.scheduling.nodepool_template import INTERNAL, Offer, Option, Refusal, without_internal
from tenure.scheduling.offerings import STRICT, missing_variety
from tenure.scheduling.settings import MAX_INSTANCE_TYPES


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """What a node to be bought holds, and the instance types that fit it."""

    offer: Offer
    option: Option
    used: Amounts
    """Without DaemonSets, in the columns of the pool's table."""
    rows: Indices
    """The instance types that are possible, as rows of the pool's table."""


def planned_claim(
    fill: Fill, pods: tuple[str, ...], min_values_policy: str = STRICT, most_types: int = MAX_INSTANCE_TYPES
) -> PlannedClaim | Refusal:
    """The NodeClaim for a fill, or why there can be none once its instance types are cut to the cheapest."""
    pool, table = fill.offer.template.pool, fill.offer.table
    rows = cheapest_first(fill)[:most_types]
    missing = missing_variety(table, fill.option.requirements, rows)
    if missing and min_values_policy == STRICT:
        return Refusal(f"minValues cannot be kept with {most_types} instance types: {missing}")
    requirements = _lowered(fill, rows) if missing else fill.option.requirements
    return PlannedClaim(
        pool=pool.name,
        pool_uid=pool.uid,
        node_class=pool.node_class,
        labels={**without_internal(requirements).custom_labels(), **fill.offer.template.labels},
        annotations=_annotations(pool.template_annotations, pool.hash, relaxed=bool(missing)) | _overlaid(fill, rows),
        requirements=_written(fill, requirements, rows),
        requests=_requests(fill, rows),
        taints=pool.taints,
        startup_taints=pool.startup_taints,
        expire_after=pool.expire_after,
        termination_grace_period=pool.termination_grace_period,
        node_class_group=pool.node_class_group,
        node_class_kind=pool.node_class_kind,
        pods=pods,
        capacity_bound=fill.offer.bound(rows),
    )


def cheapest_first(fill: Fill) -> Indices:
    """The types of a fill by the price of their cheapest offering that can be had; equal prices by name."""
    prices = fill.offer.prices(fill.option)[fill.rows]
    return fill.rows[np.lexsort((fill.rows, prices))]


def _requests(fill: Fill, rows: Indices) -> dict[str, int]:
    """What the pods ask for, and what DaemonSets take at least on any of the types (reference 2.9)."""
    least = fill.offer.template.overhead[rows].min(axis=0)
    return fill.offer.table.amounts(fill.used + least)


def _written(fill: Fill, requirements: Requirements, rows: Indices) -> tuple[Expression, ...]:
    """All requirements, with the instance types in order of price and the capacity types that can be had."""
    table = fill.offer.table
    types = _types_expression(requirements, [table.names[row] for row in rows])
    offered = _offered(fill, rows)
    capacity = one_of(CAPACITY_TYPE, *sorted(set(table.capacity_types[offered])))
    if CAPACITY_TYPE in requirements:
        capacity = requirements[CAPACITY_TYPE].intersection(capacity)
    rest = requirements.without(INSTANCE_TYPE, CAPACITY_TYPE, *INTERNAL).expressions()
    return tuple(sorted((*rest, types, *capacity.expressions()), key=lambda one: (one.key, one.operator)))


def _offered(fill: Fill, rows: Indices) -> Mask:
    """The offerings of these types that can be had."""
    chosen = np.zeros(len(fill.offer.table), dtype=bool)
    chosen[rows] = True
    return np.asarray(fill.option.offerings & chosen[fill.offer.table.offering_rows], dtype=bool)


def _overlaid(fill: Fill, rows: Indices) -> dict[str, str]:
    """Annotations that say whether NodeOverlays had a say in what it costs, or in what it holds (reference 1.3)."""
    table = fill.offer.table
    said = {
        PRICE_OVERLAY_APPLIED: bool(table.overlaid_prices[_offered(fill, rows)].any()),
        CAPACITY_OVERLAY_APPLIED: bool(table.overlaid_capacity[rows].any()),
    }
    return {key: "true" for key, applied in said.items() if applied}


def _types_expression(requirements: Requirements, names: list[str]) -> Expression:
    known = requirements.get(INSTANCE_TYPE)
    return Expression(
        key=INSTANCE_TYPE, operator="In", values=tuple(names), min_values=known.min_values if known else None
    )


def _lowered(fill: Fill, rows: Indices) -> Requirements:
    """MIN_VALUES_POLICY=BestEffort: each minValues lowered to what the types can give."""
    table = fill.offer.table
    return Requirements(
        one if one.min_values is None else replace(one, min_values=min(one.min_values, table.distinct(key, rows)))
        for key, one in fill.option.requirements.items()
    )


def _annotations(template: Mapping[str, str], pool_hash: str, *, relaxed: bool) -> dict[str, str]:
    return {
        **template,
        NODEPOOL_HASH: pool_hash,
        NODEPOOL_HASH_VERSION: HASH_VERSION,
        NODECLAIM_MIN_VALUES_RELAXED: str(relaxed).lower(),
    }


_NAMED: Final = 3


def why(fill: Fill, pods: Sequence[PodFact], homes: int) -> str:
    """For whom, of which pool, what it is meant to be, at which price in US dollars an hour, and how full.

    The types of the fill are to be cheapest first."""
    rows, priced = fill.rows, _priced(fill)
    among = f"the cheapest of {len(rows)} instance types" if len(rows) > 1 else "the only one"
    return (
        f"{_named(pods)}: no room on {homes} nodes; {priced[0]} $/h is {among} of pool "
        f"{fill.offer.name} that fit, {_filled(fill, int(rows[0]))}{_next(priced[1:])}"
    )


def _priced(fill: Fill) -> list[str]:
    """The cheapest types, each with its price."""
    prices, names = fill.offer.prices(fill.option), fill.offer.table.names
    return [f"{names[row]} at {float(prices[row]):.4g}" for row in fill.rows[:_NAMED]]


def _next(priced: Sequence[str]) -> str:
    """What would have come after the one that is bought."""
    return f"; before {' and '.join(priced)}" if priced else ""


def _named(pods: Sequence[PodFact]) -> str:
    names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:_NAMED])
    more = len(pods) - _NAMED
    return f"{len(pods)} pods ({names} and {more} more)" if more > 0 else names


def _filled(fill: Fill, row: int) -> str:
    """Of what DaemonSets leave, in percent."""
    table, room = fill.offer.table, fill.offer.template.room[row]
    asked = [(key, column) for key, column in table.columns.items() if fill.used[column] and key != PODS]
    shares = [f"{round(100 * int(fill.used[column]) / int(room[column]))} % {key}" for key, column in asked]
    return f"filled to {', '.join(shares)}" if shares else "for pods that ask for nothing"
