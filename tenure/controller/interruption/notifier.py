"""Interruptions: signals to NodeClaim workflows, and immediate actions before any workflow decides.

Interrupted nodes count as terminating, and their capacity pools as unavailable, at once. One plan can therefore replace
the nodes of a burst elsewhere. Pods without a budget are evicted at once (docs/decisions/interruption-spreading.md).
Sent signals are stored in this process only, since workflows ignore repeated messages."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from heapq import nlargest
from typing import Final
from weakref import WeakValueDictionary

import structlog
from cachetools import FIFOCache
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.ports.interruption import InterruptedNode, NotifyOutcome
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.clock import utc_now
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.kube.facts.pod_drain import first_eviction_batch
from tenure.model.facts import NodeClaimFact
from tenure.model.instance_types import UnavailableOffering
from tenure.model.interruption.messages import EventKind, InterruptionMessage, InterruptionMessages
from tenure.model.launch import interrupted_offering
from tenure.model.nodeclaim.requests import MAX_EVICTED_PODS
from tenure.model.observations import ObservedUnavailableOfferings
from tenure.policy.interruption.decision import drains_immediately
from tenure.policy.interruption.rules import RECLAIM_KINDS, resolve_event_policy
from workflows import ids

log = structlog.get_logger(__name__)

MAX_CONCURRENT_SIGNALS: Final = 32
MAX_TRACKED: Final = 20_000
"""Signaled messages; the oldest are forgotten first."""
LAUNCH_WINDOW: Final = timedelta(minutes=2)
"""For this long an unknown instance may belong to a NodeClaim that has no instance yet."""
_RECHECK_AFTER: Final = timedelta(seconds=1)
_RPC_TIMEOUT: Final = timedelta(seconds=10)
_PERMANENT_ERRORS: Final = frozenset(
    {RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.OUT_OF_RANGE}
)
"""Errors that a retry of the same signal cannot resolve. An operator may fix other errors, such as an expired key."""

_Key = tuple[str, str, str]
"""Instance, kind, ID."""
_MessageState = tuple[str, datetime | None, datetime | None]
"""Status, start, end: a message with another state is signaled again."""


class InterruptionNotifier:
    """Notifies NodeClaim workflows. One per process, independent of the process that hosts the watch."""

    def __init__(self, temporal: Client, cluster: str, *, now: Callable[[], datetime] = utc_now) -> None:
        self._temporal, self._cluster, self._now = temporal, cluster, now
        self._notified: FIFOCache[_Key, tuple[datetime, _MessageState]] = FIFOCache(MAX_TRACKED)
        """By key, the time of the last message from AWS; older messages are stale."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._sending = asyncio.Semaphore(MAX_CONCURRENT_SIGNALS)
        self._launching_at: tuple[datetime, bool] | None = None

    async def notify(
        self,
        cache: ClusterCache,
        instance_id: str,
        messages: Sequence[InterruptionMessage],
        *,
        known: bool,
        evicted_pods: Sequence[str] = (),
    ) -> NotifyOutcome:
        """Runs one call at a time per instance. `known`: the cache has every current NodeClaim; `evicted_pods`: pods
        whose eviction was already requested.

        Raises RPCError for a rejection by Temporal that a retry cannot resolve."""
        claim = cache.nodeclaim_of_instance(instance_id)
        if claim is None:
            return self._classify_unknown(cache, known)
        relevant = [one for one in messages if not (claim.deleting and one.kind == "instanceTerminating")]
        if not relevant:
            return "over"
        lock = self._locks.setdefault(instance_id, asyncio.Lock())
        async with lock:
            new_messages = self._select_new(instance_id, relevant)
            if not new_messages:
                return "repeated"
            signal = InterruptionMessages(
                instance_id=instance_id,
                messages=tuple(new_messages),
                evicted_pods=tuple(evicted_pods)[:MAX_EVICTED_PODS],
            )
            outcome = await self._signal(claim, signal)
            if outcome == "notified":
                self._track(instance_id, new_messages)
            return outcome

    async def _signal(self, claim: NodeClaimFact, messages: InterruptionMessages) -> NotifyOutcome:
        workflow_id = ids.nodeclaim(self._cluster, claim.name, claim.uid)
        handle = self._temporal.get_workflow_handle(workflow_id)
        try:
            async with self._sending:
                await handle.signal("interruption_events", messages, rpc_timeout=_RPC_TIMEOUT)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return "over" if claim.deleting else "no workflow"
            if error.status in _PERMANENT_ERRORS:
                raise
            log.warning("failed to signal NodeClaim workflow", workflow=workflow_id, error=str(error))
            return "later"
        kinds = sorted({one.kind for one in messages.messages})
        log.info("signaled NodeClaim workflow", claim=claim.name, instance=messages.instance_id, kinds=kinds)
        return "notified"

    def _classify_unknown(self, cache: ClusterCache, known: bool) -> NotifyOutcome:
        """An instance without a NodeClaim is foreign, unless a launching NodeClaim may still receive it."""
        if not known:
            return "later"
        now = self._now()
        if self._launching_at is None or abs(now - self._launching_at[0]) >= _RECHECK_AFTER:
            launching = (one for one in cache.nodeclaims.values() if not one.provider_id and not one.deleting)
            self._launching_at = (now, any(now - one.created < LAUNCH_WINDOW for one in launching))
        return "not yet" if self._launching_at[1] else "foreign"

    def _select_new(self, instance_id: str, messages: Sequence[InterruptionMessage]) -> list[InterruptionMessage]:
        """Messages that were not signaled yet; of several with the same kind and ID, only the latest."""
        latest: dict[_Key, InterruptionMessage] = {}
        for one in sorted(messages, key=lambda message: message.at):
            latest[_tracking_key(instance_id, one)] = one
        return [one for key, one in latest.items() if self._is_new(key, one)]

    def _is_new(self, key: _Key, message: InterruptionMessage) -> bool:
        before = self._notified.get(key)
        return before is None or (before[1] != _message_state(message) and before[0] <= message.at)

    def _track(self, instance_id: str, messages: Sequence[InterruptionMessage]) -> None:
        for one in messages:
            self._notified[_tracking_key(instance_id, one)] = (one.at, _message_state(one))


def _tracking_key(instance_id: str, message: InterruptionMessage) -> _Key:
    return (instance_id, message.kind, message.id)


def _message_state(message: InterruptionMessage) -> _MessageState:
    return (message.status, message.starts, message.ends)


BURST_SIZE: Final = 10
"""Nodes that AWS interrupts within five minutes. Fewer are replaced at the lowest price, like any other nodes."""
RENOTIFY_AFTER: Final = timedelta(seconds=30)
"""A notification about many interruptions is repeated when interruptions continue for longer than this."""


class InterruptionBurst:
    def __init__(self) -> None:
        self._counts: dict[str, datetime] = {}
        """By NodeClaim UID, the time at which it stops counting. The NodeClaim may be deleted before."""
        self._notified_until: datetime | None = None

    def add(self, uid: str, until: datetime) -> None:
        """Further messages for a NodeClaim that already counts have no effect."""
        self._counts.setdefault(uid, until)

    def expire(self, now: datetime) -> None:
        """Forget NodeClaims that no longer count."""
        self._counts = {uid: until for uid, until in self._counts.items() if now < until}

    def ends_at(self, now: datetime) -> datetime | None:
        """When fewer than `BURST_SIZE` NodeClaims will count; None if that is already so."""
        self.expire(now)
        latest = nlargest(BURST_SIZE, self._counts.values())
        return latest[-1] if len(latest) == BURST_SIZE else None

    def needs_notification(self, now: datetime) -> bool:
        """Whether a burst began or continues. A true result marks the burst as notified."""
        until = self.ends_at(now)
        if until is None or (self._notified_until is not None and until < self._notified_until + RENOTIFY_AFTER):
            return False
        self._notified_until = until
        return True


INTERRUPTION_WINDOW: Final = timedelta(minutes=5)
"""AWS gives two minutes. An instance that outlives this window counts as no longer interrupted."""

_CapacityPool = tuple[str, str, str, str]


class InterruptedCapacity:
    """`rules`: of LifecyclePolicies, by NodePool; `notify` signals unavailable offerings to Provisioning."""

    def __init__(
        self,
        cache: ClusterCache,
        rules: Callable[[str], LifecycleRules | None],
        notify: Callable[[ObservedUnavailableOfferings], None],
        now: Callable[[], datetime],
    ) -> None:
        self._cache, self._rules, self._notify, self._now = cache, rules, notify, now
        self.burst = InterruptionBurst()
        self._unavailable_offerings: dict[_CapacityPool, UnavailableOffering] = {}
        self._until: dict[str, datetime] = {}
        """By NodeClaim, the time up to which it counts as terminating."""
        self._early_evicted: dict[str, datetime] = {}
        """By NodeClaim, the time up to which its early eviction counts."""

    def observe(self, claim: NodeClaimFact, messages: Sequence[InterruptionMessage]) -> None:
        """Mark the NodeClaim's node as interrupted. Repeated and late messages have no effect."""
        now = self._now()
        for one in self._accept(claim, messages, now):
            self._set_interrupted(claim, one.kind, min(one.at, now) + INTERRUPTION_WINDOW)

    def start_early_eviction(
        self, claim: NodeClaimFact, messages: Sequence[InterruptionMessage]
    ) -> InterruptedNode | None:
        """The node whose pods must be evicted at once. From here on no signal reports the node as empty."""
        now, rules = self._now(), self._rules(claim.pool)
        accepted = self._accept(claim, messages, now)
        if claim.deleting or not claim.initialized or not any(drains_immediately(rules, one.kind) for one in accepted):
            return None
        nodes = self._cache.nodes_of(claim)
        if len(nodes) != 1 or nodes[0].deleting:
            return None
        (node,) = nodes
        pods = first_eviction_batch(self._cache.occupancy.pods_on(node.name).values(), now)
        if not pods:
            return None
        self._early_evicted[claim.name] = now + INTERRUPTION_WINDOW
        self._cache.set_early_evicted(claim.name, early_evicted=True)
        return InterruptedNode(node=node.name, uid=node.uid, tainted=bool(node.taints), pods=pods)

    def unavailable_offerings(self, now: datetime) -> Sequence[UnavailableOffering]:
        return [one for one in self._unavailable_offerings.values() if now < one.until]

    @property
    def next_expiry(self) -> datetime | None:
        """When to call `expire` without a change."""
        return min((*self._until.values(), *self._early_evicted.values()), default=None)

    def expire(self, now: datetime) -> None:
        """Unmark NodeClaims whose instances AWS did not reclaim in time."""
        self.burst.expire(now)
        for name in [
            name for name, until in self._until.items() if until <= now or name not in self._cache.interrupted
        ]:
            del self._until[name]
            self._cache.set_interrupted(name, interrupted=False)
        for name in [name for name, until in self._early_evicted.items() if until <= now]:
            del self._early_evicted[name]
            self._cache.set_early_evicted(name, early_evicted=False)

    def _set_interrupted(self, claim: NodeClaimFact, kind: EventKind, until: datetime) -> None:
        """No effect if the NodePool's policy ignores events of this kind."""
        if claim.deleting or claim.name in self._until or self._is_ignored(claim, kind):
            return
        self._until[claim.name] = until
        self._cache.set_interrupted(claim.name, interrupted=True)

    def _is_ignored(self, claim: NodeClaimFact, kind: EventKind) -> bool:
        return resolve_event_policy(self._rules(claim.pool), kind).action == "ignore"

    def _accept(
        self, claim: NodeClaimFact, messages: Sequence[InterruptionMessage], now: datetime
    ) -> list[InterruptionMessage]:
        """The messages that reclaim the capacity. Signals new unavailable offerings and bursts."""
        found = _capacity_interruptions(messages, now)
        for one in found:
            announced_at = min(one.at, now)
            if not self._is_ignored(claim, one.kind):
                self.burst.add(claim.uid, announced_at + INTERRUPTION_WINDOW)
            is_new_offering = self._add_unavailable(claim, announced_at, now)
            if self.burst.needs_notification(now) or is_new_offering:
                self._notify(
                    ObservedUnavailableOfferings(
                        unavailable=tuple(self.unavailable_offerings(now)), burst_ends_at=self.burst.ends_at(now)
                    )
                )
        return found

    def _add_unavailable(self, claim: NodeClaimFact, announced_at: datetime, now: datetime) -> bool:
        """Mark the capacity pool as unavailable, even if the node survives. False if that is not new."""
        offering = interrupted_offering(claim.labels, announced_at)
        if offering is None or offering.until <= now:
            return False
        pool = (offering.instance_type, offering.zone, offering.capacity_type, offering.reservation_id)
        known = self._unavailable_offerings.get(pool)
        if known is not None and offering.until < known.until + RENOTIFY_AFTER:
            return False
        self._unavailable_offerings[pool] = offering
        current = tuple(self.unavailable_offerings(now))
        self._unavailable_offerings = {key: one for key, one in self._unavailable_offerings.items() if one in current}
        log.info("capacity pool marked as unavailable", type=offering.instance_type, zone=offering.zone)
        return True


def _capacity_interruptions(messages: Sequence[InterruptionMessage], now: datetime) -> list[InterruptionMessage]:
    """Announced reclaims whose interruption window is not over."""
    announced = (one for one in messages if one.kind in RECLAIM_KINDS and one.status == "announced")
    return [one for one in announced if now < min(one.at, now) + INTERRUPTION_WINDOW]
