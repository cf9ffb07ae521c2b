"""Pods that a plan expects on a node, and who is to bring them.

A node that is up is kept, and its pods are bought nothing else, for as long as plans say so. Where kube-scheduler never
binds one there, for a reason that no plan can know, only a person can help: it is named, and counted.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from temporalio.common import MetricMeter

from tenure.controller.cache.availability import Away, is_replacing, still_runs
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import ANSWERED_WITHIN, VALID, Nominations
from tenure.controller.metrics.planner import ToldGauge
from tenure.controller.signals.digests import AWAITED_FOR
from tenure.model.facts import ClaimFact

NOT_BOUND: Final = "tenure_pods_not_bound"
COMING: Final = "pods of nodes that go are expected here"


class Expected(NamedTuple):
    """What is expected of a NodeClaim's node."""

    any: bool
    until: datetime | None
    """When the last expectation ends, or ended; None with `any` means no end in sight."""
    words: str = ""
    """Which pods, for people; empty where none is to be told of."""
    since: datetime | None = None
    """Since when they could be there."""


class Awaited:
    def __init__(self, caches: Caches, nominations: Nominations, away: Away) -> None:
        self._caches, self._nominations, self._away = caches, nominations, away

    def of(self, claim: ClaimFact, now: datetime, *, occupied: bool) -> Expected:
        """Of one that is `occupied` nobody asks for what its command has yet to do."""
        until = self._away.lapse(claim, self._nominations, now)
        words, since = self._told(claim, now)
        if occupied or not is_replacing(self._caches, claim, now):
            return Expected(self._nominations.expected(claim.name), until, words, since)
        return Expected(True, max(until or now, now + VALID), words or COMING, since or self._away.up_since(claim))

    def _told(self, claim: ClaimFact, now: datetime) -> tuple[str, datetime | None]:
        up, waiting = self._away.up_since(claim), self._nominations.waiting(claim.name)
        # In this order they come and go, so that the words seldom change.
        pending = sorted((uid for uid in waiting if self._is_planned(uid, up, now)), key=self._age)
        if pending:
            pod, others = self._caches.pending[pending[0]], " and others" if len(pending) > 1 else ""
            words = f"pod {pod.namespace}/{pod.name}{others} expected here, and not bound by kube-scheduler"
            return words, self._since(pending, up)
        coming = [uid for uid in waiting if still_runs(self._caches, uid, now)]
        return (COMING, self._since(coming, up)) if coming else ("", None)

    def _is_planned(self, uid: str, up: datetime | None, now: datetime) -> bool:
        """It waits for kube-scheduler, and plans have said lately that it goes there."""
        nomination = self._nominations.of(uid)
        if nomination is None or uid not in self._caches.pending:
            return False
        return now < self._nominations.lapses(nomination, up or now) + ANSWERED_WITHIN

    def _age(self, uid: str) -> tuple[datetime, str]:
        pod, nomination = self._caches.pending[uid], self._nominations.of(uid)
        assert nomination is not None
        return nomination.since, f"{pod.namespace}/{pod.name}"

    def _since(self, pods: Sequence[str], up: datetime | None) -> datetime | None:
        """None where its node is not up yet."""
        since = min((found.since for uid in pods if (found := self._nominations.of(uid))), default=None)
        return max(since, up) if since and up else None

    def not_bound(self, now: datetime) -> Counter[tuple[str, ...]]:
        """By NodePool: how many pods kube-scheduler leaves waiting for too long beside a node that is up."""
        found: Counter[tuple[str, ...]] = Counter()
        for name in self._nominations.targets():
            claim = self._caches.claims.get(name)
            if claim is not None and self._is_here(claim, now):
                up, waiting = self._away.up_since(claim), self._nominations.waiting(name)
                since = (self._since([uid], up) for uid in waiting if self._is_planned(uid, up, now))
                found[claim.pool,] += sum(at is not None and at + AWAITED_FOR <= now for at in since)
        return +found

    def _is_here(self, claim: ClaimFact, now: datetime) -> bool:
        """Its node is initialized, is there, and is not away."""
        away = self._away.of(claim)
        return away is not None and away.standing(now) == "here"


class AwaitedGauge:
    """Told by the process that hosts the watch; what is no more goes back to 0."""

    def __init__(self, awaited: Awaited, meter: MetricMeter) -> None:
        self._awaited = awaited
        tells = "Pods expected on nodes that are up, and not bound for over a minute"
        self._gauge = ToldGauge(meter.create_gauge(NOT_BOUND, tells), "nodepool")

    def show(self, now: datetime) -> None:
        self._gauge.show(self._awaited.not_bound(now))

    def close(self) -> None:
        """Another process tells from here on."""
        self._gauge.show({})
