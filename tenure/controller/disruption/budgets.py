"""How many nodes may go by budgets, windows and rules, as the caches have the cluster. `disrupting.py` asks.

NodePool workflows ask the same of the live cluster before they give a permit: here it only keeps from proposing what
would not be permitted. Only they know how many nodes went lately, so rates are theirs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime

from tenure.apis.labels import ZONE
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.cluster_cache import Caches
from tenure.model.disruption.planning import Allowances
from tenure.model.facts import ClaimFact, NodeFact
from tenure.model.operator_requests import ALL_READ, Unread
from tenure.policy.disruption.limits import NodeCounted, PoolWishes, decide_allowances, reopens


class Allowing:
    """`rules_of`: what LifecyclePolicies say of a NodePool; `unread_of`: what of it nobody can read."""

    def __init__(
        self,
        caches: Caches,
        rules_of: Callable[[str], LifecycleRules | None],
        unread_of: Callable[[str], Unread] = lambda pool: ALL_READ,
    ) -> None:
        self._caches, self._rules_of, self._unread_of = caches, rules_of, unread_of

    def allowances(self, under_way: Collection[str], now: datetime) -> Allowances:
        """`under_way`: UIDs of NodeClaims whose disruption has begun, tainted yet or not."""
        return decide_allowances(self._wishes(), self._counted(under_way), (), now)

    def consuming(self, under_way: Collection[str]) -> Counter[str]:
        """How many nodes use budgets up, by NodePool."""
        return Counter(one.pool for one in self._counted(under_way) if one.consuming)

    def reopens(self, now: datetime) -> datetime | None:
        """When time alone lets more go than now."""
        return reopens(self._wishes(), now)

    def _wishes(self) -> list[PoolWishes]:
        found = []
        for name, view in self._caches.pools.items():
            rules = self._rules_of(name)
            found.append(PoolWishes(name, view.budgets, rules.disruption if rules else None, self._unread_of(name)))
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
                    consuming=claim.uid in under_way or is_going(claim, nodes),
                )


def is_going(claim: ClaimFact, nodes: Sequence[NodeFact]) -> bool:
    """NotReady, or on its way out. One that lost its Node keeps no other, as where permits are given."""
    disrupted = any(node.being_disrupted for node in nodes)
    return claim.deleting or disrupted or (bool(nodes) and not any(node.ready for node in nodes))
