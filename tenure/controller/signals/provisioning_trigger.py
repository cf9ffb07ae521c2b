"""Signals pods that need a node to the Provisioning workflow, after changes or when they are due."""

from collections.abc import Callable, Iterable
from datetime import datetime

from tenure.clock import CLOCK
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.changes import ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import Nominations
from tenure.controller.capacity_buffers import CapacityBuffers
from tenure.controller.signals.pending_pods import Batcher, classify_pods, waiting_for
from tenure.model.observations import ObservedDemand


class ProvisioningTrigger:
    """`notify` sends a signal."""

    def __init__(
        self,
        cache: ClusterCache,
        nominations: Nominations,
        not_ready: NotReadyTracker,
        buffers: CapacityBuffers | None,
        notify: Callable[[ObservedDemand], None],
    ) -> None:
        self._cache, self._nominations, self._not_ready, self._buffers = cache, nominations, not_ready, buffers
        self._notify, self._batcher = notify, Batcher()
        self._next_expiry: datetime | None = None
        """When the next nomination expires."""
        self._unlaunched: set[str] = set()
        """NodeClaims that count against the limits of their NodePool as the largest of their types."""

    @property
    def wake_times(self) -> list[datetime]:
        """Times at which to check again without a change."""
        return [one for one in (self._batcher.next_attempt_at, self._next_expiry) if one is not None]

    def update(self, changes: ChangeSet, now: datetime, *, known: bool) -> None:
        """`known`: whether pods are synced."""
        self._batcher.renotify(waiting_for(self._cache, changes.volume_claims))
        deleted = (one.name for one in changes.deleted_nodeclaims.values())
        released = self._release_limits({*changes.nodeclaims, *deleted})
        if released:
            self._batcher.renotify_all()
        if known and (changes.pods or released or any(one <= now for one in self.wake_times)):
            self._notify_if_due(now)

    def _release_limits(self, changed: Iterable[str]) -> bool:
        """Whether a launch or a deletion leaves more of a NodePool's limits, so that pending pods may fit."""
        released = False
        for name in changed:
            claim = self._cache.nodeclaims.get(name)
            nodepool = self._cache.nodepools.get(claim.pool) if claim else None
            if claim and not (claim.launched or claim.deleting) and nodepool and nodepool.fact.limits:
                self._unlaunched.add(name)
            elif name in self._unlaunched:
                self._unlaunched.remove(name)
                released = True
        return released

    def _notify_if_due(self, now: datetime) -> None:
        classified = classify_pods(self._cache, self._nominations, self._not_ready, now)
        self._next_expiry = classified.next_expiry
        short = self._buffers.unschedulable_pods() if self._buffers else []
        demand = self._batcher.decide_signal([*classified.pending, *short], now, classified.nominated)
        if demand is not None:
            self._notify(demand.model_copy(update={"number": CLOCK.next_number()}))
