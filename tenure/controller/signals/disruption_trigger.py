"""Signals the Cluster workflow when a disruption pass may decide otherwise, and NodePools when budgets may allow more.

The Cluster workflow is signaled at once after a quiet time, then at growing intervals while changes continue. A deleted
NodeClaim frees capacity and resets the interval. A NodePool is signaled when a node was initialized, recovered, lost
its disruption taint or no longer counts. Some node must also be a candidate: unhealthy, empty, drifted, or expiring
under budget.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, Literal

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.clock import CLOCK, wait_until_set
from tenure.controller.cache.changes import ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.disruption.cached_budgets import is_disrupting
from tenure.controller.signals.signaller import Signal, SignalQueue
from tenure.model.disruption.commands import ClusterChanged
from tenure.model.facts import NodeClaimFact
from workflows import ids

MIN_INTERVAL_SECONDS: Final = 1.0
MAX_INTERVAL_SECONDS: Final = 10.0
"""Seconds between signals, at first and at most. Karpenter always uses the latter (reference 4.1)."""
MIN_REST_FACTOR: Final = 4
"""Minimum interval in multiples of the last pass's duration, since the planner also has to schedule pods."""
SIGNAL: Final = "cluster_changed"


class DisruptionTrigger:
    """Call `on_change` after every burst of changes, and `run` in a task once every kind is known."""

    def __init__(
        self,
        cache: ClusterCache,
        signal_queue: SignalQueue,
        cluster: str,
        *,
        last_pass_seconds: Callable[[], float] = lambda: 0.0,
        min_interval: float = MIN_INTERVAL_SECONDS,
        max_interval: float = MAX_INTERVAL_SECONDS,
    ) -> None:
        self._cache, self._signal_queue, self._cluster = cache, signal_queue, cluster
        self._last_pass_seconds, self._min_interval, self._max_interval = last_pass_seconds, min_interval, max_interval
        self._interval = min_interval
        self._changed, self._deleted = asyncio.Event(), asyncio.Event()
        self._watch = CLOCK.next_number()
        self._notified_changes, self._notified_at = -1, -max_interval

    def on_change(self, *, nodeclaims_deleted: bool = False) -> None:
        """`nodeclaims_deleted`: whether NodeClaims were deleted."""
        if nodeclaims_deleted:
            self._interval = self._min_interval
            self._deleted.set()
        if self._cache.planner_changes.disruption_changes != self._notified_changes:
            self._changed.set()

    def trigger(self) -> None:
        """Something outside the caches changed, such as prices."""
        self._cache.planner_changes.disruption_changes += 1
        self._changed.set()

    async def run(self) -> None:
        """Runs until cancelled. The first signal reports that a process watches again."""
        self.trigger()
        while True:
            await self._changed.wait()
            await self._wait_until_due()
            self._changed.clear()
            if self._cache.planner_changes.disruption_changes == self._notified_changes:
                continue
            self._notified_changes, self._notified_at = self._cache.planner_changes.disruption_changes, time.monotonic()
            number = CLOCK.next_number()
            self._signal_queue.enqueue(
                Signal(
                    ids.cluster(self._cluster), SIGNAL, ClusterChanged(number=number, watch=self._watch), str(number)
                )
            )

    async def _wait_until_due(self) -> None:
        """Wait until the next signal is due. A deletion may bring that forward."""
        if time.monotonic() >= self._notified_at + self._max_interval:
            self._interval = self._min_interval
            return
        while (
            remaining := self._notified_at
            + max(self._interval, MIN_REST_FACTOR * self._last_pass_seconds())
            - time.monotonic()
        ) > 0:
            self._deleted.clear()
            await wait_until_set(self._deleted, remaining)
        self._interval = min(self._max_interval, 2 * self._interval)


BudgetState = Literal["", "uses", "well"]
"""How budgets count a node: not at all, as one that consumes them, or as healthy."""
_RELEASING: frozenset[tuple[BudgetState, BudgetState]] = frozenset({("", "well"), ("uses", "well"), ("uses", "")})


class BudgetHeadroomNotifier:
    def __init__(
        self,
        cache: ClusterCache,
        *,
        rules_of: Callable[[str], LifecycleRules | None],
        is_drifted: Callable[[NodeClaimFact], bool],
    ) -> None:
        self._cache, self._rules_of, self._is_drifted = cache, rules_of, is_drifted
        self._budget_states: dict[str, BudgetState] = {}
        """By the name of the NodeClaim."""
        self._released: dict[str, int] = {}
        self._initialized = False

    def released(self, pool: str) -> int:
        """A number that changes whenever the pool's budgets may allow more."""
        return self._released.get(pool, 0)

    def update(self, changes: ChangeSet, known: bool) -> None:
        """Add the NodePools to signal. `known`: whether NodeClaims, Nodes and pods are synced."""
        if not known:
            return
        names = changes.nodeclaims if self._initialized else set(self._cache.nodeclaims)
        released = {pool for name in names if (pool := self._update_state(name)) and self._initialized}
        released |= {self._remove(claim) for claim in changes.deleted_nodeclaims.values()} - {""}
        self._initialized = True
        for name in changes.deleted_nodepools:
            self._released.pop(name, None)
        for pool in self._affected_nodepools(released):
            self._released[pool] = CLOCK.next_number()
            changes.nodepools.add(pool)

    def _update_state(self, name: str) -> str:
        """The NodePool whose budgets may allow more; empty for none."""
        claim = self._cache.nodeclaims.get(name)
        if claim is None or not claim.pool:
            return ""
        before, now = self._budget_states.get(name, ""), self._budget_state_of(claim)
        self._budget_states[name] = now
        return claim.pool if (before, now) in _RELEASING else ""

    def _budget_state_of(self, claim: NodeClaimFact) -> BudgetState:
        if not claim.initialized or claim.instance_terminating:
            return ""
        return "uses" if is_disrupting(claim, self._cache.nodes_of(claim)) else "well"

    def _remove(self, claim: NodeClaimFact) -> str:
        return claim.pool if self._budget_states.pop(claim.name, "") == "uses" else ""

    def _affected_nodepools(self, released: set[str]) -> Iterable[str]:
        """The released NodePools and those whose rules count the nodes of all NodePools."""
        if not released:
            return ()
        everywhere = (name for name in self._cache.nodepools if self._counts_all(name))
        return [
            name for name in {*released, *everywhere} if name in self._cache.nodepools and self._has_candidates(name)
        ]

    def _counts_all(self, pool: str) -> bool:
        rules = self._rules_of(pool)
        return bool(rules and rules.disruption and rules.disruption.cluster_nodes is not None)

    def _has_candidates(self, pool: str) -> bool:
        rules = self._rules_of(pool)
        if rules and rules.expiry and rules.expiry.under_budget:
            return True
        return any(self._is_candidate(claim) for claim in self._cache.nodeclaims_of_nodepool(pool))

    def _is_candidate(self, claim: NodeClaimFact) -> bool:
        if claim.repair_due is not None and not claim.deleting:
            return True
        if not claim.initialized or claim.deleting:
            return False
        nodes = self._cache.nodes_of(claim)
        vacant = bool(nodes) and not any(self._cache.occupancy.is_occupied(node.name) for node in nodes)
        return vacant or self._is_drifted(claim)
