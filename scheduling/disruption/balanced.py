"""consolidationPolicy Balanced: what a move saves has to be in proportion to what it disturbs (reference 4.7)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduling.disruption.candidates import Candidate

BALANCED: Final = "Balanced"
K: Final = 2.0
"""A share of the pool's cost is saved for at most so many times that share of its disruption."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all nodes of a pool, whether they may go or not."""

    price: float = 0.0
    cost: float = 0.0


def totals(candidates: Iterable[Candidate]) -> dict[str, Totals]:
    found: dict[str, Totals] = {}
    for one in candidates:
        before = found.get(one.claim.pool, Totals())
        found[one.claim.pool] = Totals(before.price + one.price, before.cost + one.cost)
    return found


def unbalanced(leaving: Sequence[Candidate], saving: float, pools: Mapping[str, Totals]) -> str:
    """Why a Balanced pool among those of the nodes does not accept the move; empty when all do."""
    whole = sum(one.price for one in leaving)
    for pool in sorted({one.claim.pool for one in leaving if _is_balanced(one)}):
        mine = [one for one in leaving if one.claim.pool == pool]
        share = saving * sum(one.price for one in mine) / whole if whole else 0.0
        score = score_of(share, sum(one.cost for one in mine), pools.get(pool, Totals()))
        if score < 1 / K:
            return f"NodePool {pool} is Balanced, and the move scores {score:.2f}, less than {1 / K:.2f}"
    return ""


def score_of(saving: float, cost: float, pool: Totals) -> float:
    """The share of the pool's price that is saved, for the share of its disruption that it takes; 0 for no gain."""
    if saving <= 0 or pool.price <= 0 or pool.cost <= 0 or cost <= 0:
        return 0.0
    return (saving / pool.price) / (cost / pool.cost)


def _is_balanced(one: Candidate) -> bool:
    return one.pool is not None and one.pool.consolidation_policy == BALANCED
