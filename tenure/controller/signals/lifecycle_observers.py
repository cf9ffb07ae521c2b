"""What the watch makes of NodeClaims' lives beside telling their workflows: rules, pauses, how long they take, who is
overdue, and when they leave room for others to go.

`session.py` lets it look after every burst of changes, before workflows are told.
"""

from collections.abc import Sequence
from typing import Any

from tenure.controller.cache.dirty import ChangeSet
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.metrics.nodeclaims import NodeClaimMetrics, OverdueMetrics
from tenure.controller.metrics.nodepools import NodePoolMetrics
from tenure.controller.signals.disruption_trigger import BudgetHeadroomNotifier
from tenure.controller.startup_durations import StartupDurations


class LifecycleObservers:
    def __init__(
        self,
        policies: LifecyclePolicies,
        startup: StartupDurations,
        gauges: Sequence[OverdueMetrics | NodeClaimMetrics | NodePoolMetrics],
        cluster_pause: ClusterPause,
        headroom_notifier: BudgetHeadroomNotifier,
    ) -> None:
        self.policies, self.startup, self.cluster_pause, self._gauges, self._headroom_notifier = (
            policies,
            startup,
            cluster_pause,
            gauges,
            headroom_notifier,
        )

    def update(self, changes: ChangeSet, known: bool, *, counted: bool) -> None:
        """`known`: all policies, and the NodePools that they select; `counted`: NodeClaims, Nodes and pods are."""
        if self.policies.update(changes, known):
            self.startup.forget_expected()
        self.cluster_pause.requeue_nodepools(changes)
        self.startup.update(changes)
        for gauge in self._gauges:
            gauge.update(changes)
        self._headroom_notifier.update(changes, known and counted)

    def nodepool_fields(self, name: str, pause: str) -> dict[str, Any]:
        """What `nodepool_digest` tells of a NodePool beyond its own status; `pause`: its annotation."""
        policies = self.policies
        return {
            "pauses": (pause, self.cluster_pause.text),
            "rules": policies.rules_of(name),
            "unread": policies.unread_of(name),
            "freed": self._headroom_notifier.released(name),
        }

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.policies.run()
        finally:
            for gauge in self._gauges:
                gauge.close()
