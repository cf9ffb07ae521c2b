"""Nominations: the Node or NodeClaim on which the last plans expect each pending pod.

A nominated pod needs no plan, and its target does not count as empty. A nomination expires `NOMINATION_TTL` after the
plan, or after the initialization of a node that is still starting. The pod then needs a plan again, and its target
waits for the plan that repeats the nomination."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tenure.controller.cache.changes import PodBound, PodDeleted
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.model.plan import UnschedulablePod

NOMINATION_TTL: Final = timedelta(seconds=20)
"""max(2 x the longest batch window, 10 s), as in Karpenter (reference 2.17)."""

REPLAN_WITHIN: Final = timedelta(seconds=90)
"""Time after a nomination expires within which a new plan surely repeats it (`pending_pods.MAX_RENEW_INTERVAL`). A
target without a repeated nomination is empty from then on."""


@dataclass(frozen=True, slots=True)
class Nomination:
    target: str
    """The name of a Node or a NodeClaim."""
    at: datetime
    since: datetime
    """The first of the consecutive plans that chose this target."""


@dataclass(frozen=True, slots=True)
class _DepartedPod:
    """A deleted pod whose replacement is probably being created."""

    owner: str
    at: datetime


class Nominations:
    """By pod UID and by target. `owner_of`: the UID of a pod's owner, empty if unknown."""

    def __init__(self, owner_of: Callable[[str], str] = lambda pod: "") -> None:
        self._owner_of = owner_of
        self._by_pod: dict[str, Nomination] = {}
        self._by_target: dict[str, set[str]] = {}
        self._ended: dict[str, datetime] = {}
        self._departed: dict[str, list[_DepartedPod]] = {}
        """By target, in the order of their departure. No list is empty."""
        self.unschedulable: Mapping[str, UnschedulablePod] = {}
        """By UID, the pods for which the latest plan has no target."""
        self.blocked_reason = ""
        """Why no plan is possible yet."""

    def subscribe_to(self, cache: ClusterCache, now: Callable[[], datetime]) -> None:
        """Follow the cache's pods, and requeue targets that lose or gain a nomination."""

        def on_pod_bound(event: PodBound) -> None:
            location = cache.nomination_target(cache.pods[event.uid].node_name)
            vacated = self.on_pod_arrived(event.uid, location, now())
            for target in (vacated, self.on_pod_bound(event.uid, now())):
                cache.requeue_nodeclaim(target)

        def on_pod_deleted(event: PodDeleted) -> None:
            cache.requeue_nodeclaim(self.on_pod_deleted(event.pod.uid, event.pod.owner_uid, now()))

        cache.subscribe(PodBound, on_pod_bound)
        cache.subscribe(PodDeleted, on_pod_deleted)

    def nominate(self, targets: Mapping[str, str], now: datetime, since: Mapping[str, datetime] | None = None) -> None:
        """Store a plan's nominations, pod UID to target. They replace earlier nominations of the same pods.

        `since`: by pod UID, when an earlier process chose the same target."""
        for pod, target in targets.items():
            earlier = self._by_pod.get(pod)
            began = earlier.since if earlier and earlier.target == target else (since or {}).get(pod, now)
            self.on_pod_bound(pod, now)
            self._set_nomination(pod, target, now, began)

    def remove_unschedulable(self, pods: Iterable[UnschedulablePod], now: datetime) -> None:
        """Remove the nominations of all pods for which the latest plan has no target."""
        self.unschedulable = {one.pod_uid: one for one in pods}
        for pod in self.unschedulable:
            self.on_pod_bound(pod, now)

    def on_pod_bound(self, pod: str, now: datetime) -> str:
        """Returns the target that no longer expects the pod; empty if none did."""
        nomination = self._pop_nomination(pod)
        if nomination is None:
            return ""
        if nomination.target not in self._by_target:
            self._ended[nomination.target] = now
        return nomination.target

    def on_pod_deleted(self, pod: str, owner: str, now: datetime) -> str:
        """Returns the target that expected the deleted pod, or an empty string. The target still expects a pod, since a
        replacement is probably being created."""
        nomination = self._pop_nomination(pod)
        if nomination is None:
            return ""
        recent = [one for one in self._departed.get(nomination.target, ()) if now < one.at + NOMINATION_TTL]
        self._departed[nomination.target] = [*recent, _DepartedPod(owner, now)]
        return nomination.target

    def on_pod_arrived(self, pod: str, target: str, now: datetime) -> str:
        """kube-scheduler does not follow plans: it may bind a pod to the target of another pod of the same owner. That
        other pod is then nominated to the target that the bound pod, or a deleted pod of this owner, vacated. Returns
        the vacated target; empty if nothing was swapped."""
        owner, own = self._owner_of(pod), self._by_pod.get(pod)
        siblings = (one for one in self._by_target.get(target, ()) if one != pod and self._owner_of(one) == owner)
        sibling = next(siblings, None) if owner and (own is None or own.target != target) else None
        if sibling is None:
            return ""
        vacated = own.target if own else self._pop_vacated_target(owner, target, now)
        if vacated:
            self._pop_nomination(sibling)
            self._set_nomination(sibling, vacated, now, now)
        return vacated

    def _pop_vacated_target(self, owner: str, other: str, now: datetime) -> str:
        """A target other than `other` that a pod of this owner left recently. Its replacement is assumed to have
        arrived."""
        for target, departed in self._departed.items():
            found = next((one for one in departed if one.owner == owner and now < one.at + NOMINATION_TTL), None)
            if found is not None and target != other:
                departed.remove(found)
                if not departed:
                    del self._departed[target]
                return target
        return ""

    def forget_target(self, target: str) -> tuple[str, ...]:
        """Remove the nominations to a target that is gone or terminating, and return their pods."""
        self._ended.pop(target, None)
        self._departed.pop(target, None)
        pods = tuple(self._by_target.pop(target, ()))
        for pod in pods:
            del self._by_pod[pod]
        return pods

    def forget_other_targets(self, existing: Collection[str]) -> None:
        """Forget ended nominations to targets that are gone, such as Nodes without a NodeClaim."""
        self._ended = {target: at for target, at in self._ended.items() if target in existing}
        self._departed = {target: pods for target, pods in self._departed.items() if target in existing}

    def pods_expected_on(self, target: str) -> tuple[str, ...]:
        return tuple(self._by_target.get(target, ()))

    def nomination_of(self, pod: str) -> Nomination | None:
        return self._by_pod.get(pod)

    def last_expiry(self, target: str, initialized_at: datetime | None) -> datetime | None:
        """When the last nomination to this target ends or ended; None without nominations or without a known end."""
        pods = [self._by_pod[pod] for pod in self._by_target.get(target, ())]
        departed = [one.at for one in self._departed.get(target, ())]
        if not pods and not departed:
            return self._ended.get(target)
        if initialized_at is None:
            return None
        expiries = [self.expires_at(one, initialized_at) + REPLAN_WITHIN for one in pods]
        expiries += [max(at, initialized_at) + NOMINATION_TTL for at in departed]
        return max(expiries)

    def is_expecting(self, target: str) -> bool:
        """Whether any pod is nominated to it, even if expired, or a departed pod's replacement is expected."""
        return target in self._by_target or target in self._departed

    def expires_at(self, nomination: Nomination, initialized_at: datetime) -> datetime:
        return max(nomination.at, initialized_at) + NOMINATION_TTL

    def _set_nomination(self, pod: str, target: str, now: datetime, since: datetime) -> None:
        self._by_pod[pod] = Nomination(target, now, since)
        self._by_target.setdefault(target, set()).add(pod)

    def _pop_nomination(self, pod: str) -> Nomination | None:
        nomination = self._by_pod.pop(pod, None)
        if nomination is not None:
            waiting = self._by_target[nomination.target]
            waiting.discard(pod)
            if not waiting:
                del self._by_target[nomination.target]
        return nomination

    def nominated_nodes(self) -> Iterable[str]:
        return tuple(self._by_target)
