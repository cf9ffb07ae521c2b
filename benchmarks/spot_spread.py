"""Cost of spreading replacements after an interruption over capacity pools, and the impact of one more interruption.

    python -m benchmarks.spot_spread [plain:2000 equal:500 ...]

One plan with only spot capacity. EC2's choice within a fleet is unknown. This model takes the cheapest pool of a
request for the whole request, which is the worst case for an interruption.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from benchmarks.generators.instance_types import ZONES
from benchmarks.generators.workloads import Scenario, make_scenario
from tenure.apis.labels import INSTANCE_TYPE, SPOT, ZONE
from tenure.model.instance_types import MIN_TYPES_PER_SHARD, OfferingShard, list_offering_shards
from tenure.model.plan import PlannedNodeClaim
from tenure.scheduling.snapshot import Change

NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
MOST_TYPES: Final = 60
KINDS: Final = ("equal:500", "plain:2000", "diverse:1000")
Pool = tuple[str, str]
"""Capacity pool: instance type and zone."""
Prices = Mapping[Pool, float]
Strategy = Callable[[Prices, PlannedNodeClaim, int], list[Pool]]
"""From prices, a NodeClaim and the number of equal ones to their capacity pools."""


@dataclass(frozen=True)
class Row:
    strategy: str
    largest: float
    """Fraction of the nodes in the largest pool."""
    pools: int
    price: float
    """US dollars per hour."""


def measure_strategies(workload: Scenario) -> tuple[int, list[Row]]:
    """The number of launched nodes, and a row for each strategy."""
    found = _group_alike(workload)
    prices = {
        (kind.name, one.zone): one.price
        for kind in workload.types
        for one in kind.offerings
        if one.capacity_type == SPOT
    }
    strategies: dict[str, Strategy] = {
        "one fleet for equal NodeClaims": _one_fleet,
        "three slices (current strategy)": partial(_sharded, 0),
        **{f"{parts} slices per zone": partial(_sharded, parts) for parts in (1, 2, 3, 4)},
        "`diversified` over 60 types": _diversified,
    }
    return sum(count for _, count in found), [
        _make_row(name, strategy, found, prices) for name, strategy in strategies.items()
    ]


def _group_alike(workload: Scenario) -> list[tuple[PlannedNodeClaim, int]]:
    state = workload.cluster_state()
    state.apply(Change(kind="pod", key=one.uid, fact=one) for one in workload.pod_facts())
    groups: defaultdict[tuple[object, ...], list[PlannedNodeClaim]] = defaultdict(list)
    for claim in state.provision(now=NOW).claims:
        groups[claim.pool, claim.requirements].append(claim)
    return [(ones[0], len(ones)) for ones in groups.values()]


def _make_row(name: str, strategy: Strategy, found: Sequence[tuple[PlannedNodeClaim, int]], prices: Prices) -> Row:
    bought = Counter(pool for claim, count in found for pool in strategy(prices, claim, count))
    price = sum(prices[pool] * count for pool, count in bought.items())
    return Row(name, max(bought.values()) / bought.total(), len(bought), price)


def _one_fleet(prices: Prices, claim: PlannedNodeClaim, count: int) -> list[Pool]:
    return [min(_spot_pools(prices, _type_values(claim), _zone_values(claim)), key=prices.__getitem__)] * count


def _sharded(parts: int, prices: Prices, claim: PlannedNodeClaim, count: int) -> list[Pool]:
    """`parts` shards per zone; 0: the number that `tenure/model/instance_types.py` computes."""
    types, zones = _type_values(claim), _zone_values(claim)
    most = max(1, min(parts, len(types) // MIN_TYPES_PER_SHARD))
    custom_shards = [OfferingShard(zone=zone, part=part, parts=most) for part in range(most) for zone in zones]
    shards = (custom_shards if parts else list_offering_shards(types, zones))[:count]
    cheapest = [min(_spot_pools(prices, one.select_types(types), [one.zone]), key=prices.__getitem__) for one in shards]
    return [cheapest[number % len(cheapest)] for number in range(count)]


def _diversified(prices: Prices, claim: PlannedNodeClaim, count: int) -> list[Pool]:
    pools = _spot_pools(prices, _type_values(claim)[:MOST_TYPES], _zone_values(claim))
    return [pools[number % len(pools)] for number in range(count)]


def _spot_pools(prices: Prices, types: Sequence[str], zones: Sequence[str]) -> list[Pool]:
    return [(name, zone) for name in types for zone in zones if (name, zone) in prices]


def _type_values(claim: PlannedNodeClaim) -> Sequence[str]:
    return next(one.values for one in claim.requirements if one.key == INSTANCE_TYPE)


def _zone_values(claim: PlannedNodeClaim) -> Sequence[str]:
    zone_lists = [one.values for one in claim.requirements if one.key == ZONE and one.operator == "In"]
    return zone_lists[0] if zone_lists else ZONES


def main() -> int:
    for argument in sys.argv[1:] or KINDS:
        kind, _, count = argument.partition(":")
        nodes, rows = measure_strategies(make_scenario(kind, int(count)))
        print(f"{argument}: {nodes} nodes")
        for row in rows:
            increase = row.price / rows[0].price - 1
            share = f"{row.largest:6.1%} in one of {row.pools:4} pools"
            print(f"  {row.strategy:34} {share}  $/h {row.price:8.2f} {increase:+7.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
