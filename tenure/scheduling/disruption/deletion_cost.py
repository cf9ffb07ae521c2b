"""Deletion costs of pods, by which ReplicaSets scale down first on the nodes that disruption removes first.

Classes, order and budgets are those of Karpenter (reference 1.15, 6.1). The values differ: they keep the order of nodes
with as few changes as possible, where Karpenter renumbers all nodes when one is added.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from tenure.model.disruption.decision import Cause, DisruptionBudgets, Method, NodeVerdict
from tenure.scheduling.disruption.cost import price_per_disruption

TERMINATING_COST: Final = -(2**31)
"""Of the pods on a node that is being disrupted: the lowest cost."""
SPACING: Final = 1 << 16
"""Between the costs of two nodes, so that a node fits between them."""
_TERMINATING: Final[frozenset[Cause]] = frozenset({"Deleting", "InProgress"})
_UNRANKED: Final[frozenset[Cause]] = frozenset(
    {
        "NoNode",
        "NotInitialized",
        "Nominated",
        "NoPool",
        "PoolClosed",
        "NodeDoNotDisrupt",
        "PodDoNotDisrupt",
        "PodUnplannable",
        "PodDisruptionBudget",
        "MultiplePodDisruptionBudgets",
        "PolicyUnknown",
        "TooYoung",
        "NoInstanceType",
        "Paused",
    }
)
"""Causes that keep a node for a time that Tenure does not know. Rests and consolidation policies do not count."""


@dataclass(frozen=True, slots=True)
class CostedNode:
    """A node with pods of ReplicaSets."""

    verdict: NodeVerdict
    is_drifted: bool = False
    is_disrupted: bool = False
    """The Node has the taint `disrupted`."""
    has_pinning_pods: bool = False
    """A pod that no ReplicaSet, Job or DaemonSet controls runs there, outside of kube-system."""
    written: int | None = None
    """The cost of most of its pods that have one."""


_Class = Literal["terminating", "Drifted", "Underutilized", "unranked"]


def decide_deletion_costs(nodes: Iterable[CostedNode], budgets: DisruptionBudgets) -> dict[str, int | None]:
    """By NodeClaim, in the order in which to write them; None for no cost. A pure function."""
    ordered = sorted(nodes, key=_savings_order)
    by_claim = {one.verdict.claim: _classify(one) for one in ordered}
    ranked = [*_within_budget(ordered, by_claim, budgets, "Drifted")]
    ranked += _within_budget(ordered, by_claim, budgets, "Underutilized")
    costs: dict[str, int | None] = {
        name: TERMINATING_COST for name, found in by_claim.items() if found == "terminating"
    }
    assigned = assign_costs([one.written for one in ranked])
    costs |= {one.verdict.claim: cost for one, cost in zip(ranked, assigned, strict=True)}
    return costs | {name: None for name in by_claim if name not in costs}


def _savings_order(one: CostedNode) -> tuple[float, str]:
    return -price_per_disruption(one.verdict.price, one.verdict.cost), one.verdict.node


def _classify(one: CostedNode) -> _Class:
    causes = {exclusion.cause for exclusion in one.verdict.excluded}
    if one.is_disrupted or causes & _TERMINATING:
        return "terminating"
    if one.has_pinning_pods or causes & _UNRANKED:
        return "unranked"
    if one.is_drifted and "StaticPool" not in causes:
        return "Drifted"
    return "unranked" if "Never" in causes else "Underutilized"


def _within_budget(
    ordered: Iterable[CostedNode], by_claim: dict[str, _Class], budgets: DisruptionBudgets, method: Method
) -> Iterator[CostedNode]:
    used = Counter[str]()
    for one in ordered:
        pool = one.verdict.pool
        headroom = budgets.pools.get(pool, {}).get(method)
        if by_claim[one.verdict.claim] == method and (headroom is None or used[pool] < headroom.allowed):
            used[pool] += 1
            yield one


def assign_costs(written: Sequence[int | None]) -> list[int]:
    """Ascending costs between TERMINATING_COST and zero. As many written costs as possible stay, unless two of them
    leave no room for the nodes between them."""
    retained = _longest_ascent([cost if cost and TERMINATING_COST < cost < 0 else None for cost in written])
    if not retained:
        return _spread(len(written))
    costs = [0] * len(written)
    for first, last in pairwise((-1, *retained, len(written))):
        count = last - first - 1
        high = written[last] or 0 if last < len(written) else 0
        low = written[first] or 0 if first >= 0 else max(TERMINATING_COST, high - SPACING * (count + 1))
        if high - low <= count:
            return _spread(len(written))
        for step in range(1, count + 1):
            costs[first + step] = low + (high - low) * step // (count + 1)
        if last < len(written):
            costs[last] = high
    return costs


def _spread(count: int) -> list[int]:
    spacing = min(SPACING, -TERMINATING_COST // (count + 1))
    return [-spacing * (count - position) for position in range(count)]


def _longest_ascent(values: Sequence[int | None]) -> list[int]:
    """Positions of a longest strictly ascending subsequence, without the Nones."""
    tails, ends, before = list[int](), list[int](), dict[int, int]()
    for position, value in enumerate(values):
        if value is None:
            continue
        length = bisect_left(tails, value)
        tails[length : length + 1], ends[length : length + 1] = [value], [position]
        before[position] = ends[length - 1] if length else -1
    found, position = list[int](), ends[-1] if ends else -1
    while position >= 0:
        found.append(position)
        position = before[position]
    return found[::-1]
