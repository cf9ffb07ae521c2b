"""What replaces nodes, and at which price: the rules of consolidation (reference 4.6).

Takes what `simulation.py` found; keeps of each new node only the instance types with which the nodes that go are
certainly undercut, or says why that cannot be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tenure.apis.labels import CAPACITY_TYPE, ON_DEMAND, RESERVED, SPOT
from tenure.model.disruption.planning import DisruptionSettings
from tenure.model.provisioning import PlannedClaim
from tenure.model.requirements import Requirements, one_of
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import Stage
from tenure.scheduling.disruption.simulation import Simulation
from tenure.scheduling.instance_type_table import Indices, Mask, Prices
from tenure.scheduling.nodeclaim_builder import Fill, planned_claim
from tenure.scheduling.nodepool_template import Refusal
from tenure.scheduling.offerings import STRICT, missing_variety
from tenure.scheduling.packing.planning_pass import Attempt

SPOT_VARIETY: Final = 15
"""So many cheaper spot types a single spot node is replaced by, so that it is not replaced again and again."""
_SPOT: Final = Requirements([one_of(CAPACITY_TYPE, SPOT)])
_TINY: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Replaced:
    """What comes of a simulation that is worth it."""

    claims: tuple[PlannedClaim, ...]
    moves: Mapping[str, str]
    """Pods to homes, by UID."""
    price: float
    """US dollars an hour as it is expected."""
    at_most: float


def evaluate(found: Simulation, stage: Stage, settings: DisruptionSettings) -> Replaced | Refusal:
    """The cheapest of the attempts that save enough, else why the first does not."""
    if not found.attempts:
        return Refusal(f"cannot go: {found.problem}")
    try:
        answers = [_answer(one, found.leaving, stage, settings) for one in found.attempts]
    except Exception as error:
        return Refusal(f"cannot go: what would replace it could not be found out: {error!r}")
    good = [one for one in answers if not isinstance(one, Refusal)]
    return min(good, key=lambda one: (one.price, len(one.claims))) if good else answers[0]


def _answer(
    tried: Attempt, leaving: Sequence[Candidate], stage: Stage, settings: DisruptionSettings
) -> Replaced | Refusal:
    limit = sum(one.price for one in leaving) - settings.threshold
    moves = dict(tried.packing.nominations)
    number = len(tried.packing.places.bought)
    if not number:
        if limit <= _TINY:
            return Refusal(f"it would save no more than {settings.threshold:.4g} $/h")
        return Replaced((), moves, 0.0, 0.0)
    if number > len(leaving) and not settings.replace_one_by_several:
        price = sum(tried.emission.price(one) for one in range(number))
        if price >= limit:
            return Refusal(
                f"its pods would need {number} nodes for {price:.4g} $/h, which is not less than {limit:.4g}"
            )
        return Refusal(
            f"its pods would need {number} nodes, which would cost {price:.4g} instead of {limit:.4g} $/h: only as "
            "many are bought as go"
        )
    spots = [_sparing(tried.emission.fill(one), leaving, stage, settings, alone=number == 1) for one in range(number)]
    refused = next((one for one in spots if isinstance(one, Refusal)), None)
    if refused is not None:
        return refused
    return _priced(tried, [one for one in spots if isinstance(one, _Goods)], leaving, settings, stage)


def limit_of(leaving: Sequence[Candidate], settings: DisruptionSettings, *, several: bool) -> float:
    """What replacements have to cost less than, in US dollars an hour. To buy `several` nodes has to pay more, since it
    moves many pods."""
    paid = sum(one.price for one in leaving)
    return paid - max(settings.threshold, paid * settings.least_share if several else 0.0)


@dataclass(frozen=True, slots=True)
class _Goods:
    """What one new node may be, with the most that each of its instance types costs."""

    fill: Fill
    worst: Prices
    spot_for_spot: bool = False


def _sparing(
    fill: Fill, leaving: Sequence[Candidate], stage: Stage, settings: DisruptionSettings, *, alone: bool
) -> _Goods | Refusal:
    """Of spot nodes only spot ones come, if the gate is on; a node that comes `alone` is of no type that one of those
    which go is already: that one could stay."""
    option = fill.option
    offered = set(fill.offer.table.capacity_types[option.offerings])
    spot_for_spot = all(one.verdict.capacity_type == SPOT for one in leaving) and SPOT in offered
    if spot_for_spot and not settings.spot_to_spot:
        return Refusal("spot nodes are replaced by spot nodes only while the gate SpotToSpotConsolidation is on")
    if spot_for_spot:
        pinned = fill.offer.limited_to(option, _SPOT)
        if isinstance(pinned, Refusal):
            return pinned
        fill = replace(fill, option=pinned, rows=fill.rows[pinned.types[fill.rows]])
    worst = worst_prices(fill, stage)[fill.rows]
    if alone and len(leaving) > 1:
        kept = worst < _cheapest_alike(fill, leaving)
        fill, worst = replace(fill, rows=fill.rows[kept]), worst[kept]
        if not len(fill.rows):
            return Refusal("its replacement would be of a type that one of them is already: that one can stay")
    return _Goods(fill, worst, spot_for_spot)


def _cheapest_alike(fill: Fill, leaving: Sequence[Candidate]) -> float:
    """The price below which a replacement is not merely one of the nodes that go, bought again."""
    names = {fill.offer.table.names[row] for row in fill.rows}
    return min((one.price for one in leaving if one.kind is not None and one.kind.name in names), default=np.inf)


def _priced(
    tried: Attempt,
    goods: Sequence[_Goods],
    leaving: Sequence[Candidate],
    settings: DisruptionSettings,
    stage: Stage,
) -> Replaced | Refusal:
    """Each new node may be launched as anything below its share of what is paid now."""
    limit = limit_of(leaving, settings, several=len(goods) > 1)
    least = [float(one.worst.min()) for one in goods]
    slack = limit - sum(least)
    if slack <= _TINY:
        paid = sum(one.price for one in leaving)
        than = f"{limit:.4g}" + (f", {paid:.4g} less what has to be saved" if limit < paid else "")
        return Refusal(f"its replacement would cost {sum(least):.4g} $/h, which is not less than {than}")
    claims, at_most, price = list[PlannedClaim](), 0.0, 0.0
    for number, (one, base) in enumerate(zip(goods, least, strict=True)):
        share = slack * (base + _TINY) / (sum(least) + _TINY * len(least))
        made = _claim(tried, number, one, base + share, single=len(leaving) == 1, stage=stage)
        if isinstance(made, Refusal):
            return made
        claims.append(made[0])
        price, at_most = price + made[1], at_most + made[2]
    return Replaced(tuple(claims), dict(tried.packing.nominations), price, at_most)


def _claim(
    tried: Attempt, number: int, goods: _Goods, below: float, *, single: bool, stage: Stage
) -> tuple[PlannedClaim, float, float] | Refusal:
    """The NodeClaim, its expected price and the most that it costs."""
    wishes, fill = stage.wishes, replace(goods.fill, rows=goods.fill.rows[goods.worst < below])
    needs_variety = single and goods.spot_for_spot
    if needs_variety and len(fill.rows) < SPOT_VARIETY:
        return Refusal(
            f"only {len(fill.rows)} spot instance types are cheaper: a spot node is replaced when {SPOT_VARIETY} are, "
            "so that it is not soon replaced or interrupted again"
        )
    if not goods.spot_for_spot:
        fill = _pinned(fill)
    most = max(SPOT_VARIETY, _varied(fill, stage)) if needs_variety else wishes.most_instance_types
    fill = replace(fill, rows=fill.rows[:most])
    missing = missing_variety(fill.offer.table, fill.option.requirements, fill.rows)
    if missing and wishes.min_values_policy == STRICT:
        return Refusal(f"minValues cannot be kept by what is cheaper: {missing}")
    bought = tried.packing.places.bought[number]
    claim = planned_claim(fill, tuple(bought.pods), wishes.min_values_policy, most)
    if isinstance(claim, Refusal):
        return claim
    worst = worst_prices(fill, stage)[fill.rows]
    return claim, float(fill.offer.prices(fill.option)[fill.rows].min()), float(worst.max())


def _pinned(fill: Fill) -> Fill:
    """Where spot can be had, on-demand is not bought instead: it might cost more than what it replaces."""
    if fill.option.reservation:
        return fill
    pinned = fill.offer.limited_to(fill.option, _SPOT)
    if isinstance(pinned, Refusal):
        return fill
    rows = fill.rows[pinned.types[fill.rows]]
    return replace(fill, option=pinned, rows=rows) if len(rows) else fill


def _varied(fill: Fill, stage: Stage) -> int:
    """How many of the cheapest types minValues needs."""
    if stage.wishes.min_values_policy != STRICT or not any(one.min_values for one in fill.option.requirements.values()):
        return 0
    table, wanted = fill.offer.table, fill.option.requirements
    counts = (
        number for number in range(1, len(fill.rows) + 1) if not missing_variety(table, wanted, fill.rows[:number])
    )
    return next(counts, len(fill.rows))


def worst_prices(fill: Fill, stage: Stage) -> Prices:
    """By type the most that a launch may cost: EC2 is asked for reserved capacity, then spot, then on-demand, and may
    choose the dearest zone."""
    option = fill.option
    key = fill.offer.name, option.requirements, option.reservation
    known = stage.worst.get(key)
    if known is None:
        known = stage.worst[key] = _worst(fill, stage)
    return known


def _worst(fill: Fill, stage: Stage) -> Prices:
    table, option = fill.offer.table, fill.option
    offered = table.offerings_with(option.requirements) & stage.available(fill.offer)
    if not option.reservation:
        offered = offered & ~table.reserved
    worst = np.full(len(table), np.inf)
    for capacity_type in (ON_DEMAND, SPOT, RESERVED):
        chosen: Mask = offered & np.asarray(table.capacity_types == capacity_type, dtype=bool)
        rows: Indices = table.offering_rows[chosen]
        dearest = np.full(len(table), -np.inf)
        np.maximum.at(dearest, rows, table.offering_prices[chosen])
        worst = np.where(np.isfinite(dearest), dearest, worst)
    return worst
