"""Disruptions that budgets, windows and rules allow, according to the cache.

NodePool workflows check the same against the live cluster before they grant a permit. The check here only avoids
proposals that would get no permit. It ignores rate limits: only the workflows know how many nodes were disrupted
recently."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime

from tenure.apis.labels import ZONE
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.model.disruption.decision import DisruptionBudgets
from tenure.model.facts import NodeClaimFact, NodeFact
from tenure.model.operator_requests import NO_INVALID_RULES, InvalidRules
from tenure.policy.disruption.limits import NodeCounted, PoolDisruptionRules, decide_pool_budgets, next_budget_opening


class NodePoolBudgets:
    """`rules_of`: the rules of LifecyclePolicies for a NodePool; `unread_of`: the invalid ones."""

    def __init__(
        self,
        cache: ClusterCache,
        rules_of: Callable[[str], LifecycleRules | None],
        unread_of: Callable[[str], InvalidRules] = lambda pool: NO_INVALID_RULES,
    ) -> None:
        self._cache, self._rules_of, self._unread_of = cache, rules_of, unread_of

    def allowed_disruptions(self, under_way: Collection[str], now: datetime) -> DisruptionBudgets:
        """`under_way`: UIDs of NodeClaims whose disruption has begun, with or without a taint."""
        return decide_pool_budgets(self._nodepool_budgets(), self._iter_counted_nodes(under_way), (), now)

    def count_consuming(self, under_way: Collection[str]) -> Counter[str]:
        """The number of nodes that consume budgets, by NodePool."""
        return Counter(one.pool for one in self._iter_counted_nodes(under_way) if one.consuming)

    def next_opening(self, now: datetime) -> datetime | None:
        """The next time at which a schedule alone allows more disruptions."""
        return next_budget_opening(self._nodepool_budgets(), now)

    def _nodepool_budgets(self) -> list[PoolDisruptionRules]:
        found = []
        for name, view in self._cache.nodepools.items():
            rules = self._rules_of(name)
            found.append(
                PoolDisruptionRules(name, view.budgets, rules.disruption if rules else None, self._unread_of(name))
            )
        return found

    def _iter_counted_nodes(self, under_way: Collection[str]) -> Iterator[NodeCounted]:
        for claim in self._cache.nodeclaims.values():
            if claim.pool and claim.initialized and not claim.instance_terminating:
                nodes = self._cache.nodes_of(claim)
                zones = [one.labels[ZONE] for one in nodes if ZONE in one.labels]
                consuming = claim.uid in under_way or is_disrupting(claim, nodes)
                yield NodeCounted(
                    uid=claim.uid,
                    pool=claim.pool,
                    zone=zones[0] if zones else claim.labels.get(ZONE, ""),
                    consuming=consuming,
                    unavailable=consuming
                    and claim.uid not in under_way
                    and not (claim.deleting or claim.rebooting)
                    and not any(node.being_disrupted for node in nodes),
                )


def is_disrupting(claim: NodeClaimFact, nodes: Sequence[NodeFact]) -> bool:
    """Whether the node is being disrupted, terminating, NotReady or missing, as in the permits of the NodePool
    workflow."""
    return (
        claim.deleting
        or claim.rebooting
        or any(node.being_disrupted for node in nodes)
        or not any(node.ready for node in nodes)
    )
