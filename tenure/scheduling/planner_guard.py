"""Guards each object of the planner, so that an error of one object affects no other object."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tenure.model.blockers import POD_UNPLANNABLE
from tenure.model.facts import DaemonSetFact, NodeClaimFact, NodeFact, NodePoolFact, PodFact
from tenure.model.invalid_objects import PLANNER_STEPS, InvalidObjects, ObjectKey
from tenure.model.nodeoverlays import OverlayFact
from tenure.model.plan import Plan
from tenure.scheduling.packing.pod_requirements import PodShape, PodShapeCache, build_pod_shape
from tenure.scheduling.packing.rejections import unscheduled_pod
from tenure.scheduling.pods import CACHES, constraints_of, find_excessive_terms, node_requirement_alternatives
from tenure.scheduling.snapshot import Change, FactKind

MAX_ATTEMPTS: Final = 64
"""Plans to find the pods that make planning fail, including the failed plan."""
RETRY_AFTER: Final = timedelta(minutes=5)
"""Pods that exceed the planning budget are planned again after this time, since the cluster has changed."""
_GUARDED: Final[Sequence[tuple[FactKind, type, str]]] = (
    ("pod", PodFact, "Pod"),
    ("node", NodeFact, "Node"),
    ("claim", NodeClaimFact, "NodeClaim"),
    ("pool", NodePoolFact, "NodePool"),
    ("daemonset", DaemonSetFact, "DaemonSet"),
    ("overlay", OverlayFact, "NodeOverlay"),
)
_KINDS: Final[Mapping[type, str]] = {fact: kind for _, fact, kind in _GUARDED}
_KINDS_BY_CHANGE: Final[Mapping[FactKind, str]] = {change: kind for change, _, kind in _GUARDED}
GuardedFact = PodFact | NodeFact | NodeClaimFact | NodePoolFact | DaemonSetFact | OverlayFact
ShapedPods = Sequence[tuple[PodShape, PodFact]]


class _FaultyPod(NamedTuple):
    why: str
    retry_at: datetime | None = None
    """None: it is planned again after a change."""


class PlannerGuard:
    def __init__(self, pod_shapes: PodShapeCache) -> None:
        self._pod_shapes = pod_shapes
        self.invalid_objects = InvalidObjects()
        self._faulty_pods: dict[str, _FaultyPod] = {}
        """By UID, the pods that made planning fail, or exceeded the planning budget."""

    def of(self, fact: GuardedFact, step: str = "") -> AbstractContextManager[None]:
        """`step`: distinguishes several guards of the same object."""
        return self.invalid_objects.guard(_object_key(fact, step))

    def check(self, change: Change) -> Change | None:
        """The change in a form that planning can use; None keeps the last known form."""
        if change.fact is None:
            self._forget(change)
        if change.kind == "pod":
            self._pod_shapes.discard(change.key)
        match change.fact:
            case PodFact() as pod:
                self._faulty_pods.pop(change.key, None)
                if CACHES.add_pod(pod):
                    self._pod_shapes.clear()
                if problem := find_excessive_terms(pod):
                    pod = _reduce_terms(pod, pod.unplannable or problem)
                    change = change.model_copy(update={"fact": pod})
                with self.of(pod):
                    if not pod.node_name:
                        self._pod_shapes.shape(pod)
                    elif pod.anti_affinity:
                        hash(build_pod_shape(pod))
                    return change
                self._pod_shapes.discard(change.key)
                unplannable = _unplannable_pod(pod, "the pod cannot be read for planning")
                return change.model_copy(update={"fact": unplannable})
            case DaemonSetFact() as daemonset:
                with self.of(daemonset):
                    if problem := find_excessive_terms(daemonset.pod):
                        raise ValueError(problem)
                    node_requirement_alternatives(constraints_of(daemonset.pod))
                    return change
                return None
        return change

    def retry_faulty_pods(self) -> None:
        """Include faulty pods in plans again, since an object changed that they may depend on."""
        for uid in self._faulty_pods:
            self.invalid_objects.forget_object("Pod", uid)
        self._faulty_pods.clear()

    def plan(self, shaped_pods: ShapedPods, make_plan: Callable[[ShapedPods], Plan], now: datetime) -> Plan:
        """The plan without the pods that make planning fail, or recently exceeded its budget. Raises the error if every
        pod makes it fail."""
        for uid in [uid for uid, one in self._faulty_pods.items() if one.retry_at and one.retry_at <= now]:
            del self._faulty_pods[uid]
        usable: ShapedPods = [one for one in shaped_pods if one[1].uid not in self._faulty_pods]
        try:
            plan = make_plan(usable)
        except Exception as error:
            usable = self._exclude_faulty(usable, make_plan, error)
            plan = make_plan(usable)
        rejected = [
            unscheduled_pod(pod, self._faulty_pods[pod.uid].why, POD_UNPLANNABLE)
            for _, pod in shaped_pods
            if pod.uid in self._faulty_pods
        ]
        for one in plan.unschedulable:
            if one.code == POD_UNPLANNABLE:
                self._faulty_pods[one.pod_uid] = _FaultyPod(one.reason, now + RETRY_AFTER)
        return plan.model_copy(update={"unschedulable": (*rejected, *plan.unschedulable)}) if rejected else plan

    def _exclude_faulty(
        self, usable: ShapedPods, make_plan: Callable[[ShapedPods], Plan], error: Exception
    ) -> ShapedPods:
        groups: dict[str, list[tuple[PodShape, PodFact]]] = {}
        for one in usable:
            groups.setdefault(one[1].owner_uid or one[1].uid, []).append(one)
        found = {pod.uid: (pod, why) for pod, why in _FaultSearch(make_plan).find([*groups.values()], error)}
        if not found or (len(groups) > 1 and len(found) == len(usable)):
            raise error
        for uid, (pod, why) in found.items():
            with self.of(pod):
                error_message = self.invalid_objects.record(_object_key(pod), why)
                self._faulty_pods[uid] = _FaultyPod(f"planning fails with this pod: {error_message}")
        return [one for one in usable if one[1].uid not in found]

    def _forget(self, change: Change) -> None:
        self._faulty_pods.pop(change.key, None)
        kind = _KINDS_BY_CHANGE.get(change.kind)
        if kind:
            self.invalid_objects.forget_object(kind, change.key)


class _FaultSearch:
    """Bisects groups of pods with the same owner. After `MAX_ATTEMPTS`, a failing part is rejected as a whole."""

    def __init__(self, make_plan: Callable[[ShapedPods], Plan]) -> None:
        self._make_plan = make_plan
        self._attempts = 1

    def find(self, groups: Sequence[ShapedPods], error: Exception) -> Iterator[tuple[PodFact, Exception]]:
        """The faulty pods among these groups, whose plan raised `error`."""
        if len(groups) <= 1 or self._attempts >= MAX_ATTEMPTS:
            yield from ((pod, error) for group in groups for _, pod in group)
            return
        middle = len(groups) // 2
        for half in (groups[:middle], groups[middle:]):
            self._attempts += 1
            try:
                self._make_plan([one for group in half for one in group])
            except Exception as found:
                yield from self.find(half, found)


def _object_key(fact: GuardedFact, step: str = "") -> ObjectKey:
    name = f"{fact.namespace}/{fact.name}" if isinstance(fact, (PodFact, DaemonSetFact)) else fact.name
    return ObjectKey(_KINDS[type(fact)], name, fact.uid, f"{PLANNER_STEPS}-{step}" if step else PLANNER_STEPS)


def _unplannable_pod(pod: PodFact, why: str) -> PodFact:
    """The safest form: the pod is not planned, and its node is protected from voluntary disruption."""
    terms = ("spreads", "affinity", "anti_affinity", "required_terms", "preferred_terms", "tolerations")
    return pod.model_copy(
        update={**dict.fromkeys(terms, ()), "node_selector": {}, "do_not_disrupt": "true", "unplannable": why}
    )


def _reduce_terms(pod: PodFact, why: str) -> PodFact:
    """An unplannable pod that still excludes the pods that its required anti-affinity selects, since kube-scheduler
    does. If these terms are excessive, one per topology key excludes all pods of the namespaces."""
    required = tuple(one for one in pod.anti_affinity if not one.weight and one.selector is not None)
    reduced = _unplannable_pod(pod, why)
    if find_excessive_terms(exact := reduced.model_copy(update={"anti_affinity": required})):
        names = {name for one in required for name in one.namespaces or (pod.namespace,)}
        everywhere = () if any(one.namespace_selector is not None for one in required) else None
        fields = {"selector": (), "namespaces": tuple(sorted(names)), "namespace_selector": everywhere}
        by_key = {one.key: one.model_copy(update=fields) for one in required}
        return reduced.model_copy(update={"anti_affinity": tuple(by_key.values())})
    return exact
