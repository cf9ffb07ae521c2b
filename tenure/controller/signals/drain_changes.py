"""Digests of what blocked drains wait for: pods, their PodDisruptionBudgets, volumes, the Node and the deadline.

Only a drain that has published its blockers has a digest, so an ordinary drain causes no signal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.signals.digests import short_hash
from tenure.kube.facts.pod_drain import is_protected, must_wait_for
from tenure.model.facts import NodeClaimFact, NodeFact, PodDisruptionBudgetFact, PodFact

FIRST_PAUSE: Final = timedelta(seconds=1)
MAX_PAUSE: Final = timedelta(minutes=20)
"""Bounds of the pause between two digests of a drain. It doubles until a pod leaves, or nothing changes for long."""
MAX_URGENT_PAUSE: Final = timedelta(seconds=30)
"""The longest pause if a pod left or can be evicted now."""


@dataclass(frozen=True)
class _Changed:
    digest: str
    pods: int
    evictable: int
    at: datetime
    pause: timedelta = FIRST_PAUSE


class DrainChanges:
    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._last: dict[str, _Changed] = {}
        """By NodeClaim."""

    def digest_of(self, claim: NodeClaimFact, nodes: Iterable[NodeFact], now: datetime) -> tuple[str, datetime | None]:
        """The digest, empty unless the drain waits, and when it can change next. A change soon after another one
        appears later."""
        if not claim.drain_waits:
            self.forget(claim.name)
            return "", None
        last, found = self._last.get(claim.name), self._observe(claim, nodes, now)
        if last is None:
            self._last[claim.name] = found
            return found.digest, None
        if found.digest == last.digest:
            return found.digest, None
        has_progressed = found.pods < last.pods
        is_urgent = has_progressed or found.evictable > last.evictable
        due = last.at + (min(last.pause, MAX_URGENT_PAUSE) if is_urgent else last.pause)
        if now < due:
            return last.digest, due
        resets = has_progressed or now - last.at >= MAX_PAUSE + last.pause
        pause = FIRST_PAUSE if resets else min(MAX_PAUSE, 2 * last.pause)
        self._last[claim.name] = _Changed(found.digest, found.pods, found.evictable, now, pause)
        return found.digest, None

    def forget(self, nodeclaim: str) -> None:
        self._last.pop(nodeclaim, None)

    def _observe(self, claim: NodeClaimFact, nodes: Iterable[NodeFact], now: datetime) -> _Changed:
        here = tuple(nodes)
        pods = sorted(
            (
                pod
                for node in here
                for pod in self._cache.occupancy.pods_on(node.name).values()
                if must_wait_for(pod, now)
            ),
            key=lambda pod: pod.uid,
        )
        budgets = {pod.uid: self._cache.selecting_budgets(pod) for pod in pods}
        state = (
            claim.annotations.get(NODECLAIM_TERMINATION_TIMESTAMP),
            [(node.name, node.ready, node.deleting, self._cache.attachments_of(node.name)) for node in here],
            [_pod_state(pod) for pod in pods],
            sorted({one.model_dump_json() for found in budgets.values() for one in found}),
        )
        evictable = sum(_is_evictable(pod, budgets[pod.uid], now) for pod in pods)
        return _Changed(short_hash(repr(state)), len(pods), evictable, now)


def _pod_state(pod: PodFact) -> tuple[object, ...]:
    return (pod.uid, pod.deletion_deadline, pod.ready, pod.do_not_disrupt, pod.started, sorted(pod.labels.items()))


def _is_evictable(pod: PodFact, budgets: tuple[PodDisruptionBudgetFact, ...], now: datetime) -> bool:
    if pod.deleting or is_protected(pod.do_not_disrupt, pod.started, now):
        return False
    return not budgets or (len(budgets) == 1 and budgets[0].allowed > 0)
