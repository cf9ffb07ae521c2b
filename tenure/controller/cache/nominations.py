"""Which pending pods are answered, and by which node or NodeClaim: memory of the last plans.

While a pod is expected somewhere it is no demand, and the place is not empty. On a node that is up the expectation
lapses after `NOMINATION_TTL`; on one that is still coming, as long after its initialization. The pod is demand then,
and its place waits for the plan that repeats it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.dirty import PodBound, PodDeleted

NOMINATION_TTL: Final = timedelta(seconds=20)
"""max(2 x the longest batch window, 10 s), as Karpenter has it (reference 2.17)."""

REPLAN_WITHIN: Final = timedelta(seconds=90)
"""From a pod's lapse until a plan has surely said where it goes (`is_revoking.MAX_RENEW_INTERVAL`); empty where none
did."""


@dataclass(frozen=True, slots=True)
class Nomination:
    target: str
    """The name of a Node or a NodeClaim."""
    at: datetime
    since: datetime
    """The first of the plans in a row that said so."""


@dataclass(frozen=True, slots=True)
class _DepartedPod:
    """A deleted pod whose replacement is probably being created."""

    owner: str
    at: datetime


class Nominations:
    """By pod UID and by target. `owner_of` a pod: the UID of what made it, empty where that is unknown."""

    def __init__(self, owner_of: Callable[[str], str] = lambda pod: "") -> None:
        self._owner_of = owner_of
        self._by_pod: dict[str, Nomination] = {}
        self._by_target: dict[str, set[str]] = {}
        self._ended: dict[str, datetime] = {}
        self._departed: dict[str, list[_DepartedPod]] = {}
        """In the order in which they left; never empty."""

    def subscribe_to(self, cache: ClusterCache, now: Callable[[], datetime]) -> None:
        """Follow the cache's pods; places that lose or win one are looked at again."""

        def on_pod_bound(event: PodBound) -> None:
            location = cache.nomination_target(cache.pods[event.uid].node_name)
            vacated = self.on_pod_arrived(event.uid, location, now())
            for target in (vacated, self.on_pod_bound(event.uid, now())):
                cache.requeue_nodeclaim(target)

        def on_pod_deleted(event: PodDeleted) -> None:
            cache.requeue_nodeclaim(self.on_pod_deleted(event.pod.uid, event.pod.owner_uid, now()))

        cache.subscribe(PodBound, on_pod_bound)
        cache.subscribe(PodDeleted, on_pod_deleted)

    def nominate(self, targets: Mapping[str, str], now: datetime) -> None:
        """What a plan decided: pod UID to target. Earlier answers for the same pods are replaced."""
        for pod, target in targets.items():
            earlier = self._by_pod.get(pod)
            self.on_pod_bound(pod, now)
            self._set_nomination(pod, target, now, earlier.since if earlier and earlier.target == target else now)

    def remove_unschedulable(self, pods: Iterable[str], now: datetime) -> None:
        """Plans know no place for these any more, whatever they said before."""
        for pod in pods:
            self.on_pod_bound(pod, now)

    def on_pod_bound(self, pod: str, now: datetime) -> str:
        """The pod has a node: the name of the place that no longer expects it; empty when none did."""
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
        """The pod has come to this target. kube-scheduler heeds no plan: where it has put a pod into the place of one
        of the same owner, that one is expected in its stead. Returns the target of which that is true now."""
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
        """The target, unlike another, that a pod of this owner has left lately: it is taken for followed."""
        for target, departed in self._departed.items():
            found = next((one for one in departed if one.owner == owner and now < one.at + NOMINATION_TTL), None)
            if found is not None and target != other:
                departed.remove(found)
                if not departed:
                    del self._departed[target]
                return target
        return ""

    def forget_target(self, target: str) -> tuple[str, ...]:
        """The target is gone or going: its pods are demand again."""
        self._ended.pop(target, None)
        self._departed.pop(target, None)
        pods = tuple(self._by_target.pop(target, ()))
        for pod in pods:
            del self._by_pod[pod]
        return pods

    def pods_expected_on(self, target: str) -> tuple[str, ...]:
        return tuple(self._by_target.get(target, ()))

    def nomination_of(self, pod: str) -> Nomination | None:
        return self._by_pod.get(pod)

    def last_expiry(self, target: str, initialized_at: datetime | None) -> datetime | None:
        """When the last expectation on this target ends, or ended; None when there is none, or no end in sight."""
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
        """Whether any pod is written down for it, lapsed or not."""
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
