"""Effects of NodeClaim lifecycle changes on LifecyclePolicies, pauses, expected durations and budget headroom.

They are updated with every burst of changes, before workflows are signaled, since they add to the changes.
"""

from collections.abc import Callable
from typing import Any

from tenure.controller.cache.changes import ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.signals.disruption_trigger import BudgetHeadroomNotifier
from tenure.controller.startup_durations import StartupDurations
from tenure.model.facts import NodeClaimFact


class LifecycleObservers:
    def __init__(
        self,
        cache: ClusterCache,
        policies: LifecyclePolicies,
        cluster_pause: ClusterPause,
        *,
        is_drifted: Callable[[NodeClaimFact], bool] = lambda claim: False,
    ) -> None:
        self.policies, self._cluster_pause = policies, cluster_pause
        self.startup = StartupDurations(cache, policies.deadlines_of)
        self._headroom_notifier = BudgetHeadroomNotifier(cache, rules_of=policies.rules_of, is_drifted=is_drifted)

    def update(self, changes: ChangeSet, known: bool, *, counted: bool) -> None:
        """Synced kinds: `known`: policies and the NodePools that they select; `counted`: NodeClaims, Nodes and pods."""
        if self.policies.update(changes, known):
            self.startup.forget_expected()
        self._cluster_pause.requeue_nodepools(changes)
        self.startup.update(changes)
        self._headroom_notifier.update(changes, known and counted)

    def nodepool_fields(self, name: str, pause: str) -> dict[str, Any]:
        """The arguments of `nodepool_digest` beyond the NodePool's own status; `pause`: its annotation."""
        return {
            "pauses": (pause, self._cluster_pause.text),
            "rules": self.policies.rules_of(name),
            "unread": self.policies.unread_of(name),
            "freed": self._headroom_notifier.released(name),
        }
