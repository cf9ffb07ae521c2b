"""How many nodes may go by budgets, windows and rules, as the caches have the cluster. `disrupting.py` asks.

NodePool workflows ask the same of the live cluster before they give a permit: here it only keeps from proposing what
would not be permitted. Only they know how many nodes went lately, so rates are theirs.
"""

from collections.abc import Callable, Collection, Iterator
from datetime import datetime

from controller.caches import Caches
from model.disruption import Allowances
from model.facts import ClaimFact
from model.kinds import LifecycleRules
from model.labels import DISRUPTED_TAINT_KEY, ZONE
from policy.allowances import NodeCounted, PoolWishes, decide_allowances
from policy.reopening import reopens


class Allowing:
    """`rules_of`: what LifecyclePolicies say of a NodePool."""

    def __init__(self, caches: Caches, rules_of: Callable[[str], LifecycleRules | None]) -> None:
        self._caches, self._rules_of = caches, rules_of

    def allowances(self, under_way: Collection[str], now: datetime) -> Allowances:
        """`under_way`: UIDs of NodeClaims whose disruption has begun, tainted yet or not."""
        return decide_allowances(self._wishes(), self._counted(under_way), (), now)

    def reopens(self, now: datetime) -> datetime | None:
        """When time alone lets more go than now."""
        return reopens(self._wishes(), now)

    def _wishes(self) -> list[PoolWishes]:
        found = []
        for name, view in self._caches.pools.items():
            rules = self._rules_of(name)
            found.append(PoolWishes(name, view.budgets, rules.disruption if rules else None))
        return found

    def _counted(self, under_way: Collection[str]) -> Iterator[NodeCounted]:
        for claim in self._caches.claims.values():
            if claim.pool and claim.initialized and not claim.instance_terminating:
                nodes = self._caches.nodes_of(claim)
                zones = [one.labels[ZONE] for one in nodes if ZONE in one.labels]
                yield NodeCounted(
                    uid=claim.uid,
                    pool=claim.pool,
                    zone=zones[0] if zones else claim.labels.get(ZONE, ""),
                    consuming=claim.uid in under_way or self._is_going(claim),
                )

    def _is_going(self, claim: ClaimFact) -> bool:
        """NotReady, or on its way out."""
        nodes = self._caches.nodes_of(claim)
        tainted = any(one.key == DISRUPTED_TAINT_KEY for node in nodes for one in node.taints)
        return claim.deleting or tainted or not any(node.ready for node in nodes)
