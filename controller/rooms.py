"""Tells NodePools when their budgets may leave more than before, so that those who wait for one need not look for it.

That is when a node became initialized, when one that was NotReady or on its way out is not any more, and when one that
goes no longer counts. Only where some node may wish to go: it has no pods, has drifted, or expires under the budget.
`telling.py` tells the NodePool; other changes of it, such as a NodeClaim that is gone, are told in any case.
"""

import time
from collections.abc import Callable, Iterable
from typing import Literal

from controller.allowing import is_going
from controller.caches import Caches
from controller.dirty import Dirty
from model.facts import ClaimFact
from model.kinds import LifecycleRules

Standing = Literal["", "uses", "well"]
"""Of a node, as budgets count it: not at all; as one that uses them up; as one that does not."""
_FREED: frozenset[tuple[Standing, Standing]] = frozenset({("", "well"), ("uses", "well"), ("uses", "")})


class Rooms:
    def __init__(
        self,
        caches: Caches,
        *,
        rules_of: Callable[[str], LifecycleRules | None],
        drifted: Callable[[ClaimFact], bool],
        number: Callable[[], int] = time.time_ns,
    ) -> None:
        self._caches, self._rules_of, self._drifted, self._number = caches, rules_of, drifted, number
        self._standing: dict[str, Standing] = {}
        """By the name of the NodeClaim."""
        self._freed: dict[str, int] = {}
        self._begun = False

    def freed(self, pool: str) -> int:
        """Another number whenever its budgets may leave more."""
        return self._freed.get(pool, 0)

    def look(self, dirty: Dirty, known: bool) -> None:
        """Adds the NodePools that are to be told. `known`: NodeClaims, Nodes and pods are."""
        if not known:
            return
        names = dirty.claims if self._begun else set(self._caches.claims)
        freed = {pool for name in names if (pool := self._note(name)) and self._begun}
        freed |= {self._forget(claim) for claim in dirty.gone_claims.values()} - {""}
        self._begun = True
        for pool in self._concerned(freed):
            self._freed[pool] = self._number()
            dirty.pools.add(pool)

    def _note(self, name: str) -> str:
        """The NodePool whose budgets may leave more; empty for none."""
        claim = self._caches.claims.get(name)
        if claim is None or not claim.pool:
            return ""
        before, now = self._standing.get(name, ""), self._standing_of(claim)
        self._standing[name] = now
        return claim.pool if (before, now) in _FREED else ""

    def _standing_of(self, claim: ClaimFact) -> Standing:
        if not claim.initialized or claim.instance_terminating:
            return ""
        return "uses" if is_going(claim, self._caches.nodes_of(claim)) else "well"

    def _forget(self, claim: ClaimFact) -> str:
        return claim.pool if self._standing.pop(claim.name, "") == "uses" else ""

    def _concerned(self, freed: set[str]) -> Iterable[str]:
        """Beside themselves those whose rules count the nodes of all NodePools."""
        if not freed:
            return ()
        everywhere = (name for name in self._caches.pools if self._counts_all(name))
        return [name for name in {*freed, *everywhere} if name in self._caches.pools and self._is_wished(name)]

    def _counts_all(self, pool: str) -> bool:
        rules = self._rules_of(pool)
        return bool(rules and rules.disruption and rules.disruption.cluster_nodes is not None)

    def _is_wished(self, pool: str) -> bool:
        rules = self._rules_of(pool)
        if rules and rules.expiry and rules.expiry.under_budget:
            return True
        return any(self._may_wish(claim) for claim in self._caches.claims_of_pool(pool))

    def _may_wish(self, claim: ClaimFact) -> bool:
        if not claim.initialized or claim.deleting:
            return False
        nodes = self._caches.nodes_of(claim)
        vacant = bool(nodes) and not any(self._caches.occupancy.occupied(node.name) for node in nodes)
        return vacant or self._drifted(claim)
