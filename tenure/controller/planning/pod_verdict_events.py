"""Events and log lines with the verdicts on pending pods.

Each plan publishes the verdicts on its pods. Pods that need attention get their events also without a plan, since
kube-scheduler does not try some pods, such as those whose ResourceClaim does not exist.

Pods of a NodeClaim for which EC2 has no capacity get the event of the NodeClaim (reference 1.15, 7.5). `KubeEvents`
limits the rate."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.ports.core import Events
from tenure.controller.cache.changes import CapacityLacking
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cache.pod_verdicts import PODS_AT_ONCE, PodVerdicts
from tenure.controller.planning.pod_groups import PodGroups
from tenure.kube.client.resources import PODS
from tenure.model.blockers import NOMINATED, NOT_TRIED, PENDING_PODS
from tenure.model.facts import PodFact
from tenure.model.invalid_objects import pod_key

log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 3.0
MIN_AGE: Final = timedelta(seconds=5)
"""kube-scheduler may bind a younger pod at once."""
UNTRIED_LIMIT: Final = timedelta(minutes=1)
"""Age from which a pod that its scheduler has not tried gets an event."""
MAX_PODS: Final = 200
"""Pods that get events without a plan; the others have equal verdicts as a rule."""

_CHECK_STEP: Final = "verdict event check"
_STEP: Final = "verdict event"


class PodVerdictEvents:
    """`events` drops repeated events."""

    def __init__(self, cache: ClusterCache, verdicts: PodVerdicts, events: Events, now: Callable[[], datetime]) -> None:
        self._cache, self._verdicts, self._events, self._now = cache, verdicts, events, now
        self._logged: dict[tuple[str, str], str] = {}
        """Sentences by group and code of the pods that are due."""

    async def run(self) -> None:
        """Runs until cancelled. Verdicts also change without a change of the pod."""
        while True:
            await self.publish_due()
            await asyncio.sleep(CHECK_SECONDS)

    async def publish_due(self) -> None:
        """Thousands of pods must not delay other tasks."""
        due, found, now = list[str](), dict[tuple[str, str], PodFact](), self._now()
        groups = PodGroups()
        for step in (_CHECK_STEP, _STEP):
            self._cache.invalid_objects.retain(step, self._cache.pending)
        for number, pod in enumerate(tuple(self._cache.pending.values()), start=1):
            with self._guard(pod, _CHECK_STEP):
                if code := self._due_code(pod, now):
                    due.append(pod.uid)
                    found.setdefault((groups.group_of(pod), code), pod)
            if len(due) == MAX_PODS:
                break
            if number % PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._log_new(found, now)
        await self.publish(due)

    def _due_code(self, pod: PodFact, now: datetime) -> str:
        """Empty for a pod whose event needs no check without a plan."""
        if pod.deleting or pod.created + MIN_AGE > now:
            return ""
        code = self._verdicts.code_of(pod, now)
        if code == NOT_TRIED:
            return code if pod.created + UNTRIED_LIMIT <= now else ""
        return "" if PENDING_PODS[code].clears_by_itself else code

    def _log_new(self, found: Mapping[tuple[str, str], PodFact], now: datetime) -> None:
        """One line per group and sentence, for one pod of the group."""
        before, self._logged = self._logged, {}
        for key, pod in found.items():
            with self._guard(pod, _CHECK_STEP):
                verdict = self._verdicts.verdict_of(pod, now)
                self._logged[key] = verdict.sentence
                if before.get(key) != verdict.sentence:
                    fields = verdict.log_fields(now)
                    log.warning("blocked pod", Pod={"namespace": pod.namespace, "name": pod.name}, **fields)

    async def publish(self, uids: Iterable[str]) -> None:
        """Publish the verdict on each of these pods."""
        for uid in uids:
            if pod := self._cache.pods.get(uid):
                with self._guard(pod, _STEP):
                    await self._publish(pod)

    async def _publish(self, pod: PodFact) -> None:
        verdict = self._verdicts.verdict_of(pod, self._now())
        is_nominated = verdict.code == NOMINATED
        await self._events.publish(
            kind=PODS.kind,
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            reason=NOMINATED if is_nominated else "FailedScheduling",
            message=verdict.sentence if is_nominated else f"Failed to schedule pod, {verdict.message}",
        )

    def _guard(self, pod: PodFact, step: str) -> AbstractContextManager[None]:
        return self._cache.invalid_objects.guard(pod_key(pod, step))


CAPACITY_REASON: Final = "InsufficientCapacityError"
_CAPACITY_STEP: Final = "capacity event"


class CapacityEvents:
    """Run `run` in a task. Pods are read when the change arrives, since the NodeClaim may be deleted soon."""

    def __init__(self, cache: ClusterCache, nominations: Nominations, events: Events) -> None:
        self._cache, self._nominations, self._events = cache, nominations, events
        self._due: dict[str, str] = {}
        """Messages by UID of the pod."""
        self._wake = asyncio.Event()
        cache.subscribe(CapacityLacking, self._on_capacity_lacking)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.publish()

    async def publish(self) -> None:
        """Pods that were bound, finished or deleted in the meantime get no event."""
        due, self._due = self._due, {}
        self._cache.invalid_objects.retain(_CAPACITY_STEP, self._cache.pending)
        for uid, message in due.items():
            pod = self._cache.pending.get(uid)
            if pod is None or pod.deleting:
                continue
            with self._cache.invalid_objects.guard(pod_key(pod, _CAPACITY_STEP)):
                await self._events.publish(
                    kind=PODS.kind,
                    name=pod.name,
                    namespace=pod.namespace,
                    uid=uid,
                    reason=CAPACITY_REASON,
                    message=message,
                )

    def _on_capacity_lacking(self, event: CapacityLacking) -> None:
        message = f"NodeClaim {event.claim.name} event: {event.claim.capacity_error}"
        self._due |= dict.fromkeys(self._nominations.pods_expected_on(event.claim.name), message)
        self._wake.set()
