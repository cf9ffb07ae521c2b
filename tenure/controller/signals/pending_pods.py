"""Pods that need a node and have no nomination, and the times at which they are signaled to Provisioning.

New pods are signaled at once, unchanged ones at growing intervals."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tenure.clock import CLOCK
from tenure.controller.cache.availability import NotReadyTracker, terminating_nodes
from tenure.controller.cache.changes import ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import Nomination, Nominations
from tenure.controller.capacity_buffers import CapacityBuffers
from tenure.model.facts import PodFact
from tenure.model.observations import ObservedDemand
from tenure.scheduling.pods import excludes_nodepools
from tenure.scheduling.unscheduled_pods import TerminatingNode, pods_needing_nodes

MIN_SIGNAL_INTERVAL: Final = timedelta(milliseconds=400)
"""Between signals while pods keep arriving; less than the idle time that closes a batch."""
MIN_RENEW_INTERVAL: Final = timedelta(seconds=10)
PROMPT_LOSSES: Final = 3
"""How often a pod that loses its nomination is pending again at once; later losses are deferred."""
MAX_RENEW_INTERVAL: Final = timedelta(seconds=60)
"""Unchanged demand is signaled again after MIN_RENEW_INTERVAL at first, and MAX_RENEW_INTERVAL at most."""


class Batcher:
    def __init__(self) -> None:
        self._first_seen: dict[str, datetime] = {}
        self._nominated: set[str] = set()
        """Pods that wait for their nominated node."""
        self._losses: dict[str, int] = {}
        """How often each pod lost its nomination."""
        self._deferred_until: dict[str, datetime] = {}
        self._notified: set[str] = set()
        self._notified_at: datetime | None = None
        self._interval = MIN_RENEW_INTERVAL
        self.next_attempt_at: datetime | None = None
        """When to call `decide_signal` again without a change; None without pending pods."""

    def decide_signal(
        self, pending: Sequence[PodFact], now: datetime, nominated: Collection[str] = ()
    ) -> ObservedDemand | None:
        """The signal to send now, without its number; None for none. `nominated`: pods that wait for their node.

        While pods still run on terminating nodes, these determine the batch: replacements of evicted pods do not hold
        it open. A pod that lost its nomination keeps the time at which it was first pending, and waits for no batch."""
        pending_uids = {pod.uid for pod in pending}
        self._defer_repeated(self._nominated & pending_uids, now)
        lost = self._nominated & pending_uids
        self._nominated = set(nominated)
        self._forget_others(pending_uids | self._nominated, now)
        uids = {uid for uid in pending_uids if self._deferred_until.get(uid, now) <= now}
        lost &= uids
        self._notified &= uids - lost
        deferred_until = min((self._deferred_until[uid] for uid in pending_uids - uids), default=None)
        if not uids:
            self.next_attempt_at = deferred_until
            self._interval = MIN_RENEW_INTERVAL
            return None
        due = now if lost else self._due_at(bool(uids - self._notified), now)
        if now < due:
            self.next_attempt_at = min(due, deferred_until or due)
            return None
        self._interval = MIN_RENEW_INTERVAL if uids - self._notified else min(MAX_RENEW_INTERVAL, self._interval * 2)
        self._notified, self._notified_at = uids, now
        self.next_attempt_at = min(now + self._interval, deferred_until or now + self._interval)
        running = {pod.uid for pod in pending if pod.node_name} & uids
        newest = max(self._first_seen[uid] for uid in running or uids)
        return ObservedDemand(pods=len(uids), newest_pod_at=newest, at_once=bool(lost))

    def renotify(self, uids: Collection[str]) -> None:
        """Signal these pods again as if they were new, since something changed for them."""
        self._notified -= set(uids)

    def renotify_all(self) -> None:
        self._notified.clear()

    def _defer_repeated(self, lost: Collection[str], now: datetime) -> None:
        """Defer pods that repeatedly lose their nomination. The delay before they are pending again grows each time."""
        for uid in lost:
            times = self._losses[uid] = self._losses.get(uid, 0) + 1
            if times > PROMPT_LOSSES:
                self._deferred_until[uid] = now + min(
                    MAX_RENEW_INTERVAL, MIN_RENEW_INTERVAL * (1 << min(times - PROMPT_LOSSES - 1, 5))
                )

    def _forget_others(self, uids: Collection[str], now: datetime) -> None:
        self._first_seen = {uid: self._first_seen.get(uid, now) for uid in uids}
        self._losses = {uid: times for uid, times in self._losses.items() if uid in uids}
        self._deferred_until = {uid: until for uid, until in self._deferred_until.items() if uid in uids}

    def _due_at(self, fresh: bool, now: datetime) -> datetime:
        if self._notified_at is None:
            return now
        return self._notified_at + (MIN_SIGNAL_INTERVAL if fresh else self._interval)


_NEVER: Final = datetime.min.replace(tzinfo=UTC)
NO_END: Final = datetime.max.replace(tzinfo=UTC)
"""The nomination has no known end."""


@dataclass(frozen=True, slots=True)
class PendingPods:
    pending: Sequence[PodFact]
    nominated: Collection[str]
    """UIDs of pods that wait for their nominated node."""
    next_expiry: datetime | None
    """When the next nomination expires, if nothing changes until then."""


def classify_pods(
    cache: ClusterCache, nominations: Nominations, not_ready: NotReadyTracker, now: datetime
) -> PendingPods:
    """Pods that kube-scheduler cannot place and pods on terminating nodes, without and with a valid nomination. Checks
    each pod once, and the node of a plan's nominations once: every burst of changes may have thousands of them."""
    pending, nominated, next_expiry = list[PodFact](), set[str](), NO_END
    expiries: dict[tuple[str, datetime], datetime | None] = {}
    for pod in list_pods_needing_nodes(cache, now):
        expires_at, nomination = None, nominations.nomination_of(pod.uid)
        if nomination is not None:
            key = nomination.target, nomination.at
            if key not in expiries:
                expiries[key] = _nomination_expires_at(nomination, cache, nominations, not_ready, now)
            expires_at = expiries[key]
        if expires_at is None or expires_at <= now:
            pending.append(pod)
        else:
            nominated.add(pod.uid)
            next_expiry = min(next_expiry, expires_at)
    return PendingPods(pending, nominated, next_expiry if next_expiry < NO_END else None)


def list_pods_needing_nodes(cache: ClusterCache, now: datetime) -> Iterator[PodFact]:
    def read_node(node: str) -> TerminatingNode:
        nodeclaim = cache.nodeclaim_name_of(node)
        pods = cache.occupancy.pods_on(node).values()
        return TerminatingNode(cache.nodeclaims.get(nodeclaim), pods, nodeclaim in cache.interrupted)

    terminating = [read_node(node) for node in terminating_nodes(cache)]
    budgets = cache.pod_budgets.values()
    return pods_needing_nodes(cache.pending.values(), terminating, budgets, cache.starting_pods, now)


def needs_plan(cache: ClusterCache, now: datetime) -> bool:
    """Whether a pod needs the first plan. A pod that kube-scheduler has not tried yet counts too."""
    untried = (pod for pod in cache.pending.values() if pod.untried and not (pod.daemonset or excludes_nodepools(pod)))
    return any(untried) or any(True for _ in list_pods_needing_nodes(cache, now))


def waiting_for(cache: ClusterCache, volume_claims: Collection[str]) -> list[str]:
    """UIDs of the pods without a node that use one of these PersistentVolumeClaims (`namespace/name`)."""
    if not volume_claims:
        return []
    return [
        uid
        for uid, pod in cache.pending.items()
        if any(f"{pod.namespace}/{name}" in volume_claims for name in pod.volumes)
    ]


def _nomination_expires_at(
    nomination: Nomination, cache: ClusterCache, nominations: Nominations, not_ready: NotReadyTracker, now: datetime
) -> datetime | None:
    """`NO_END` while the nominated node is starting; None for an invalid nomination."""
    claim = cache.nodeclaims.get(nomination.target)
    if claim is not None:
        if claim.deleting or claim.name in cache.interrupted:
            return None
        return not_ready.pod_expected_until(claim, nominations, nomination, now) if claim.initialized_at else NO_END
    node = cache.nodes.get(nomination.target)
    return nominations.expires_at(nomination, nomination.at) if node is not None and not node.deleting else None


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
        self._offerings_available_at: datetime | None = None
        """When offerings that were unavailable for a plan are available."""
        self._offerings_released_at = _NEVER

    @property
    def wake_times(self) -> list[datetime]:
        """Times at which to check again without a change."""
        times = (self._batcher.next_attempt_at, self._next_expiry, self._offerings_due_at)
        return [one for one in times if one is not None]

    def update(self, changes: ChangeSet, now: datetime, *, known: bool) -> None:
        """`known`: whether pods are synced."""
        self._batcher.renotify(waiting_for(self._cache, changes.volume_claims))
        deleted = (one.name for one in changes.deleted_nodeclaims.values())
        released = self._release_limits({*changes.nodeclaims, *deleted}) or self._release_offerings(now)
        if released:
            self._batcher.renotify_all()
        if known and (changes.pods or released or any(one <= now for one in self.wake_times)):
            self._notify_if_due(now)

    def expect_offerings(self, at: datetime | None) -> None:
        """Signal all pods again when offerings are available for them. None if all are available."""
        times = [one for one in (at, self._offerings_available_at) if one is not None]
        self._offerings_available_at = min(times, default=None)

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

    @property
    def _offerings_due_at(self) -> datetime | None:
        """Each time, all pods are planned, so there is an interval between two times."""
        if self._offerings_available_at is None:
            return None
        return max(self._offerings_available_at, self._offerings_released_at + MIN_RENEW_INTERVAL)

    def _release_offerings(self, now: datetime) -> bool:
        due_at = self._offerings_due_at
        if due_at is None or now < due_at:
            return False
        self._offerings_available_at, self._offerings_released_at = None, now
        return True

    def _notify_if_due(self, now: datetime) -> None:
        classified = classify_pods(self._cache, self._nominations, self._not_ready, now)
        self._next_expiry = classified.next_expiry
        short = self._buffers.unschedulable_pods() if self._buffers else []
        demand = self._batcher.decide_signal([*classified.pending, *short], now, classified.nominated)
        if demand is not None:
            self._notify(demand.model_copy(update={"number": CLOCK.next_number()}))
