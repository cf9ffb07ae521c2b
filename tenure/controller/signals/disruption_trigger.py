"""Tells the Cluster workflow when something changed that could matter for voluntary disruption: then it looks.

At once when nothing was told lately, then ever more slowly while things go on changing, and never while nothing does.
A NodeClaim that is gone leaves room for others: after that it is soon again.

Tells NodePools when their budgets may leave more than before, so that those who wait for one need not look for it.

That is when a node became initialized, when one that was NotReady or on its way out is not any more, and when one that
goes no longer counts. Only where some node may wish to go: it has no pods, has drifted, or expires under the budget.
`telling.py` tells the NodePool; other changes of it, such as a NodeClaim that is gone, are told in any case.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Literal

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty
from tenure.controller.disruption.budgets import is_going
from tenure.controller.signals.signaller import Signal, Signaller
from tenure.model.disruption.commands import Stirred
from tenure.model.facts import ClaimFact
from workflows import ids

FIRST: Final = 1.0
EVERY: Final = 10.0
"""Seconds from one word to the next, at first and at last; Karpenter always takes the last (reference 4.1)."""
SHARE: Final = 4
"""Times as long as a pass takes the planner, whose other work is placing pods, it is left alone at the least."""
SIGNAL: Final = "stirred"


class Stirring:
    """Run `run` in a task once every kind is known; `look` after every burst of changes. `took`: seconds that the last
    pass took."""

    def __init__(
        self,
        caches: Caches,
        signaller: Signaller,
        cluster: str,
        *,
        took: Callable[[], float] = lambda: 0.0,
        first: float = FIRST,
        every: float = EVERY,
    ) -> None:
        self._caches, self._signaller, self._cluster = caches, signaller, cluster
        self._took, self._first, self._every = took, first, every
        self._pause = first
        self._changed, self._freed = asyncio.Event(), asyncio.Event()
        self._told, self._told_at = -1, -every

    def look(self, *, gone: bool = False) -> None:
        """`gone`: NodeClaims are."""
        if gone:
            self._pause = self._first
            self._freed.set()
        if self._caches.changes.stirs != self._told:
            self._changed.set()

    def stir(self) -> None:
        """Something outside the caches changed, such as prices."""
        self._caches.changes.stirs += 1
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled. The first word is that somebody watches again."""
        self.stir()
        while True:
            await self._changed.wait()
            await self._rest()
            self._changed.clear()
            if self._caches.changes.stirs == self._told:
                continue
            self._told, self._told_at = self._caches.changes.stirs, time.monotonic()
            number = time.time_ns()
            self._signaller.offer(Signal(ids.cluster(self._cluster), SIGNAL, Stirred(number=number), str(number)))

    async def _rest(self) -> None:
        """Until the next word is due; what is gone meanwhile may bring that forward."""
        if time.monotonic() >= self._told_at + self._every:
            self._pause = self._first
            return
        while (left := self._told_at + max(self._pause, SHARE * self._took()) - time.monotonic()) > 0:
            self._freed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), left)
        self._pause = min(self._every, 2 * self._pause)


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
