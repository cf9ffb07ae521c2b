"""All signals for NodeClaim, NodePool, EC2NodeClass and Cluster workflows in one session, and their resync."""

from collections.abc import Callable
from datetime import datetime

from temporalio.client import Client

from tenure.apis.feature_gates import FeatureGate
from tenure.clock import CLOCK
from tenure.controller.cache.changes import ChangeBatch, SyncedKinds
from tenure.controller.resync import (
    YOUNG,
    MissingWorkflowCounter,
    list_coordinators,
    list_nodeclaim_workflows,
    notify_closed_commands,
    notify_orphaned_coordinators,
    repair_nodeclaim_workflows,
    restart_missing_coordinators,
)
from tenure.controller.settings import ControllerSettings
from tenure.controller.signals.lifecycle_observers import LifecycleObservers
from tenure.controller.signals.notifier import WorkflowNotifier
from tenure.controller.signals.signaller import SignalQueue
from tenure.controller.watched_cluster import WatchedCluster
from tenure.metrics import Meter
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.facts import NodeClaimFact
from tenure.policy.disruption.drift import Drift

_STALE_AFTER_SECONDS = 60.0


class SignalController:
    def __init__(
        self,
        *,
        settings: ControllerSettings,
        temporal: Client,
        cluster: WatchedCluster,
        signal_queue: SignalQueue,
        drift: Callable[[NodeClaimFact], Drift | None],
        discovered: Callable[[str], DiscoveredCapacity],
        meter: Meter,
        now: Callable[[], datetime],
    ) -> None:
        self._settings, self._temporal, self._cluster, self._now = settings, temporal, cluster, now
        self._signal_queue, began = signal_queue, now()
        self._missing_workflows = MissingWorkflowCounter(meter, began)
        self._observers = LifecycleObservers(
            cluster.cache, cluster.policies, cluster.pause, is_drifted=lambda claim: bool(drift(claim))
        )
        self.notifier = WorkflowNotifier(
            cluster=settings.cluster,
            deadlines=settings.deadlines,
            cache=cluster.cache,
            nominations=cluster.nominations,
            not_ready=cluster.not_ready,
            expected_pods=cluster.expected_pods,
            signal_queue=signal_queue,
            began=began,
            drift=drift,
            observers=self._observers,
            buffer_needing=cluster.buffers.buffer_needing if cluster.buffers else lambda claim: "",
            discovered=discovered,
            static_capacity=FeatureGate.STATIC_CAPACITY in settings.gates,
            repair_mode=settings.repair_mode,
        )

    def on_changes(self, batch: ChangeBatch) -> None:
        changes, known = batch.changes, batch.known
        self._observers.update(changes, known.policies, counted=known.nodeclaims and known.nodes and known.pods)
        self.notifier.notify(changes, known, batch.now)
        if known.pauses:
            self._cluster.pause.notify(self._settings.cluster, self._signal_queue, CLOCK.next_number())

    async def resync(self, known: Callable[[], SyncedKinds]) -> None:
        """Compare objects with open workflows. `known` is called after the workflows are listed."""
        cache = self._cluster.cache
        temporal, cluster = self._temporal, self._settings.cluster
        running = await list_nodeclaim_workflows(temporal, cluster)
        coordinators = await list_coordinators(temporal, cluster)
        if not self._cluster.stale_kinds(_STALE_AFTER_SECONDS):
            cache.forget_unobserved_nodeclaims(self._now() - YOUNG)
            notifier, signal_queue, synced, now = self.notifier, self._signal_queue, known(), self._now()
            started, _ = repair_nodeclaim_workflows(running, cache, notifier, signal_queue, synced, now)
            notify_orphaned_coordinators(coordinators, cluster, cache, notifier, signal_queue)
            missing = await restart_missing_coordinators(temporal, coordinators, cache, notifier, synced, now)
            self._missing_workflows.record({"NodeClaim": started, **missing}, now)
        await notify_closed_commands(temporal, cluster, self._signal_queue, self._now())
