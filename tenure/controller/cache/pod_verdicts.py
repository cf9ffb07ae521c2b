"""The verdict on each pending pod: why it has no node, and whether that clears by itself.

Events, metrics, `tenure why` and `tenure stuck` show the same verdict.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.expected_pods import (
    OTHER_SCHEDULER_LIMIT,
    ExpectedPods,
    describe_scheduler,
    scheduler_cause,
)
from tenure.controller.cache.nominations import Nomination, Nominations
from tenure.controller.planning.pod_groups import PodGroups
from tenure.controller.signals.digests import EXPECTED_PODS_DELAY
from tenure.model import blockers
from tenure.model.blockers import PENDING_PODS, Verdict
from tenure.model.facts import NodeClaimFact, PodFact
from tenure.model.invalid_objects import pod_key
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import PendingPodGroup
from tenure.scheduling.pods import excludes_nodepools, validation_error

PODS_AT_ONCE: Final = 200
_STEP: Final = "verdict"


class _Explanation(NamedTuple):
    code: str
    sentence: str = ""
    """Empty: the meaning of the code."""
    since: datetime | None = None
    """None: since the pod's scheduler could not schedule it."""
    deadline: datetime | None = None


class PodVerdicts:
    """`deadlines_of`: by NodePool."""

    def __init__(
        self,
        cache: ClusterCache,
        nominations: Nominations,
        not_ready: NotReadyTracker,
        expected_pods: ExpectedPods,
        deadlines_of: Callable[[str], Deadlines],
    ) -> None:
        self._cache, self._nominations, self._not_ready = cache, nominations, not_ready
        self._expected_pods, self._deadlines_of = expected_pods, deadlines_of

    def verdict_of(self, pod: PodFact, now: datetime) -> Verdict:
        """Of a pod that is neither bound nor finished, or that a plan moves."""
        found = self._explain(pod, now)
        reason = PENDING_PODS[found.code]
        return Verdict(
            code=found.code,
            sentence=found.sentence or reason.meaning,
            since=found.since or pod.pending_since,
            clears_by_itself=reason.clears_by_itself,
            remedy=reason.remedy,
            deadline=found.deadline,
        )

    def code_of(self, pod: PodFact, now: datetime) -> str:
        return self._explain(pod, now).code

    def list_groups(self, now: datetime, *, clearing: bool = False) -> list[PendingPodGroup]:
        """The pending pods that need attention, by owner, constraints and code, the oldest first. `clearing`: also
        those whose blocker clears by itself."""
        pod_groups, found = PodGroups(), dict[tuple[str, str], PendingPodGroup]()
        for pod in sorted(self._cache.pending.values(), key=lambda one: (one.created, one.namespace, one.name)):
            verdict = None
            with self._cache.invalid_objects.guard(pod_key(pod, _STEP)):
                verdict = None if pod.deleting else self.verdict_of(pod, now)
            if verdict is None or (verdict.clears_by_itself and not clearing):
                continue
            key = (pod_groups.group_of(pod), verdict.code)
            group = found.get(key) or PendingPodGroup(pod=f"{pod.namespace}/{pod.name}", pods=0, verdict=verdict)
            found[key] = group.model_copy(update={"pods": group.pods + 1})
        return list(found.values())

    async def count_by_code(self, now: datetime) -> Counter[tuple[str, ...]]:
        """All pending pods, by code and whether it clears by itself. Thousands of pods must not delay other tasks."""
        counted: Counter[tuple[str, ...]] = Counter()
        self._cache.invalid_objects.retain(_STEP, self._cache.pending)
        for number, pod in enumerate(tuple(self._cache.pending.values()), start=1):
            if not pod.deleting:
                with self._cache.invalid_objects.guard(pod_key(pod, _STEP)):
                    code = self.code_of(pod, now)
                    counted[code, str(PENDING_PODS[code].clears_by_itself).lower()] += 1
            if number % PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return counted

    def _explain(self, pod: PodFact, now: datetime) -> _Explanation:
        if released := self._cache.find_released(pod.uid):
            return _Explanation(blockers.NOT_BOUND, released.why, released.since)
        if rejected := self._nominations.unschedulable.get(pod.uid):
            return _Explanation(rejected.code, rejected.reason)
        nomination = self._nominations.nomination_of(pod.uid)
        return self._explain_nomination(pod, nomination, now) if nomination else self._explain_unplanned(pod)

    def _explain_nomination(self, pod: PodFact, nomination: Nomination, now: datetime) -> _Explanation:
        claim = self._cache.nodeclaims.get(nomination.target)
        if claim is None:
            return _Explanation(blockers.NOMINATED, _expectation("node", nomination.target), nomination.since)
        expected = _expectation("nodeclaim", claim.name)
        since = self._expected_pods.ready_since(claim, pod.uid, now)
        until = since + EXPECTED_PODS_DELAY if since else self._deadline_of(claim, nomination, now)
        if now < until or not claim.initialized:
            return _Explanation(blockers.NOMINATED, expected, nomination.since, until)
        if since is None:
            return self._explain_unplanned(pod)
        sentence = f"{describe_scheduler(pod)} has not bound it to NodeClaim {claim.name}, which is ready"
        deadline = since + OTHER_SCHEDULER_LIMIT if pod.scheduler else None
        return _Explanation(blockers.NOT_BOUND, sentence + scheduler_cause(pod), since, deadline)

    def _deadline_of(self, claim: NodeClaimFact, nomination: Nomination, now: datetime) -> datetime:
        """Of the phase of a starting node; otherwise, when the nomination expires."""
        if claim.initialized:
            return self._not_ready.pod_expected_until(claim, self._nominations, nomination, now)
        deadlines = self._deadlines_of(claim.pool)
        if claim.registered_at:
            return claim.registered_at + deadlines.initialization
        return claim.created + (deadlines.registration if claim.launched else deadlines.launch)

    def _explain_unplanned(self, pod: PodFact) -> _Explanation:
        if pod.daemonset:
            return _Explanation(blockers.DAEMONSET_POD)
        if excludes_nodepools(pod):
            return _Explanation(blockers.NODEPOOLS_EXCLUDED)
        if problem := validation_error(pod):
            return _Explanation(blockers.POD_UNPLANNABLE, problem)
        if pod.nominated_node:
            return _Explanation(blockers.PREEMPTION, f"kube-scheduler evicts pods of Node {pod.nominated_node} for it")
        if pod.untried:
            return _Explanation(blockers.NOT_TRIED, f"{describe_scheduler(pod)} has not tried to schedule the pod yet")
        if pod.gated:
            return _Explanation(blockers.SCHEDULING_GATED)
        if not pod.unschedulable:
            return _Explanation(blockers.SCHEDULER_ERROR)
        why = self._nominations.blocked_reason
        return _Explanation(blockers.PLAN_PENDING, f"the pod waits for the next plan: {why}" if why else "")


def _expectation(kind: str, target: str) -> str:
    """As Karpenter's event Nominated."""
    return f"Pod should schedule on: {kind}/{target}"
