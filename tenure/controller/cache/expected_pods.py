"""Pods that a plan expects on a node and that are not bound to it yet.

An initialized node is kept for its expected pods as long as plans repeat them. If kube-scheduler never binds one, only
a person can help, so the pod is reported by name and counted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tenure.apis.durations import format_duration
from tenure.controller.cache.availability import NotReadyTracker, is_replacing, still_runs
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import NOMINATION_TTL, REPLAN_WITHIN, Nominations
from tenure.controller.planning.pod_groups import launched_for, pod_group
from tenure.controller.signals.digests import EXPECTED_PODS_DELAY
from tenure.model.facts import NodeClaimFact, PodFact

OTHER_SCHEDULER_LIMIT: Final = timedelta(minutes=10)
"""How long a ready node is kept for a pod of another scheduler, whose reasons Tenure does not know."""
PODS_COMING: Final = "pods of terminating nodes are expected here"


class PodExpectation(NamedTuple):
    is_expected: bool
    until: datetime | None
    """When the last expectation ends, or ended; None with `is_expected` means no end in sight."""
    description: str = ""
    """Text that names the pods; empty if none needs to be reported."""
    since: datetime | None = None
    """The earliest time at which they could be bound."""


class ExpectedPods:
    def __init__(self, cache: ClusterCache, nominations: Nominations, not_ready: NotReadyTracker) -> None:
        self._cache, self._nominations, self._not_ready = cache, nominations, not_ready

    def expectation_for(self, claim: NodeClaimFact, now: datetime, *, occupied: bool) -> PodExpectation:
        """The pods expected on this NodeClaim. The command that launched it counts only while it is not `occupied`."""
        until = self._not_ready.last_expiry(claim, self._nominations, now)
        description, since = self._describe_pods(claim, now)
        if occupied or not is_replacing(self._cache, claim, now):
            return PodExpectation(self._nominations.is_expecting(claim.name), until, description, since)
        return PodExpectation(
            True,
            max(until or now, now + NOMINATION_TTL),
            description or PODS_COMING,
            since or self._not_ready.up_since(claim),
        )

    def _describe_pods(self, claim: NodeClaimFact, now: datetime) -> tuple[str, datetime | None]:
        up, waiting = self._not_ready.up_since(claim), self._nominations.pods_expected_on(claim.name)
        # The oldest nomination is named, so that the text seldom changes.
        pending = sorted((uid for uid in waiting if self._is_planned(uid, up, now)), key=self._nomination_age)
        if pending:
            pod, others = self._cache.pending[pending[0]], " and others" if len(pending) > 1 else ""
            named = f"pod {pod.namespace}/{pod.name}{others}"
            description = f"{named} expected here, and not bound by {describe_scheduler(pod)}{scheduler_cause(pod)}"
            return description, self._expected_since(pending, up)
        coming = [uid for uid in waiting if still_runs(self._cache, uid, now)]
        return (PODS_COMING, self._expected_since(coming, up)) if coming else ("", None)

    def _is_planned(self, uid: str, up: datetime | None, now: datetime) -> bool:
        """Whether the pod waits for kube-scheduler, and a recent plan repeated its nomination."""
        nomination = self._nominations.nomination_of(uid)
        if nomination is None or uid not in self._cache.pending:
            return False
        return now < self._nominations.expires_at(nomination, up or now) + REPLAN_WITHIN

    def _nomination_age(self, uid: str) -> tuple[datetime, str]:
        pod, nomination = self._cache.pending[uid], self._nominations.nomination_of(uid)
        assert nomination is not None
        return nomination.since, f"{pod.namespace}/{pod.name}"

    def _expected_since(self, pods: Sequence[str], up: datetime | None) -> datetime | None:
        """None while the node is not initialized."""
        since = min((found.since for uid in pods if (found := self._nominations.nomination_of(uid))), default=None)
        return max(since, up) if since and up else None

    def nominated_since(self, targets: Mapping[str, str], now: datetime) -> dict[str, datetime]:
        """By UID of a pending pod: the time from which an earlier process may have expected it on its target.

        For a NodeClaim that was launched for the pod, that is its creation. On another node, it is the failure of the
        pod's scheduler, or a later pod event of the node.
        """
        found: dict[str, datetime] = {}
        for uid, target in targets.items():
            pod, claim = self._cache.pending.get(uid), self._cache.nodeclaims.get(target)
            if pod is None:
                continue
            times = [pod.pending_since]
            if claim is not None:
                times.append(claim.created)
                if claim.last_pod_event and pod_group(pod) not in launched_for(claim):
                    times.append(claim.last_pod_event)
            found[uid] = min(now, max(times))
        return found

    def release_unbound(self, now: datetime) -> None:
        """Stop planning the pods that another scheduler has not bound to their ready node for OTHER_SCHEDULER_LIMIT, so
        that the node may go. A change of the scheduler's message starts over."""
        for name in self._nominations.nominated_nodes():
            claim = self._cache.nodeclaims.get(name)
            if claim is None or not self._is_ready(claim, now):
                continue
            up = self._not_ready.up_since(claim)
            for uid in self._nominations.pods_expected_on(name):
                since, pod = self._expected_since([uid], up), self._cache.pending.get(uid)
                if pod and pod.scheduler and since and since + OTHER_SCHEDULER_LIMIT <= now:
                    limit = format_duration(OTHER_SCHEDULER_LIMIT)
                    why = f"{describe_scheduler(pod)} has not bound it to NodeClaim {name} for {limit}"
                    self._cache.stop_planning(uid, why + scheduler_cause(pod), since)

    def ready_since(self, claim: NodeClaimFact, uid: str, now: datetime) -> datetime | None:
        """The time from which the pod could be bound to the ready node of this NodeClaim; None if it cannot."""
        up = self._not_ready.up_since(claim)
        if not self._is_ready(claim, now) or not self._is_planned(uid, up, now):
            return None
        return self._expected_since([uid], up)

    def count_not_bound(self, now: datetime) -> Counter[tuple[str, ...]]:
        """By NodePool, the number of pods that are pending for EXPECTED_PODS_DELAY although their node is ready."""
        found: Counter[tuple[str, ...]] = Counter()
        for name in self._nominations.nominated_nodes():
            claim = self._cache.nodeclaims.get(name)
            if claim is not None and self._is_ready(claim, now):
                up, waiting = self._not_ready.up_since(claim), self._nominations.pods_expected_on(name)
                since = (self._expected_since([uid], up) for uid in waiting if self._is_planned(uid, up, now))
                found[claim.pool,] += sum(at is not None and at + EXPECTED_PODS_DELAY <= now for at in since)
        return +found

    def _is_ready(self, claim: NodeClaimFact, now: datetime) -> bool:
        grace = self._not_ready.grace_for(claim)
        return grace is not None and grace.presence(now) == "here"


def describe_scheduler(pod: PodFact) -> str:
    return f"scheduler {pod.scheduler}" if pod.scheduler else "kube-scheduler"


def scheduler_cause(pod: PodFact) -> str:
    return f": {pod.scheduler_message}" if pod.scheduler_message else ""
