"""The pods that need a node, and their scheduling constraints."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from tenure.apis.durations import DurationError, parse_duration
from tenure.apis.labels import HOSTNAME, NODE_NAME_FIELD, NODEPOOL, POD_TEMPLATE_HASH
from tenure.model.facts import Expression, PodFact, PreferredTerm, Toleration
from tenure.model.requirements import (
    DOES_NOT_EXIST,
    IN,
    REQUIREMENT_CACHES,
    RequirementError,
    Requirements,
    one_of,
)

MAX_COMBINATIONS: Final = 1_000
"""Of required node affinity terms, preferences and topologies of volumes. Each is one attempt to place the pod, of up
to 1 ms. Manifests of real workloads have a few terms and preferences, and rarely 50 combinations."""
MAX_COMBINED_VALUES: Final = 1_000_000
"""Of all combinations, which are kept in memory: about 60 MB."""
MAX_TOPOLOGY_TERMS: Final = 100
"""Topology spread constraints and pod (anti-)affinity terms. Each is compared with every set of labels of running
pods: 10 ms for 2,000 sets. Real workloads have fewer than ten."""
MAX_SELECTOR_VALUES: Final = 1_000
"""Expressions and values in the label selectors of these terms."""
TOPOLOGY_FIELDS: Final = "spec.topologySpreadConstraints, podAffinity and podAntiAffinity"
MAX_CACHED_VALUES: Final = 1_000_000
"""Values in the constraints of large pods, which caches keep when the pods are gone: about 200 MB."""
_MAX_FEW_VALUES: Final = 100
"""Of pods that are not large. The sizes of the caches limit their memory."""
RESPECT: Final = "Respect"
IGNORE: Final = "Ignore"


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """One variant of a pod's node requirements; the first is the strictest, later ones drop preferences."""

    requirements: Requirements
    tolerations: tuple[Toleration, ...]
    tolerate_preferences: bool = False


@dataclass(frozen=True, slots=True)
class Constraints:
    """A pod's constraints on its node, other than size."""

    node_selector: tuple[tuple[str, str], ...]
    required_terms: tuple[tuple[Expression, ...], ...]
    preferred_terms: tuple[PreferredTerm, ...]
    tolerations: tuple[Toleration, ...]
    _hash: int = field(init=False, repr=False, compare=False)
    """There may be thousands of terms, and every lookup needs the hash."""

    def __post_init__(self) -> None:
        terms = self.node_selector, self.required_terms, self.preferred_terms, self.tolerations
        object.__setattr__(self, "_hash", hash(terms))

    def __hash__(self) -> int:
        return self._hash


ANYWHERE: Final = Constraints((), (), (), ())


def provisionable_pods(unbound_pods: Iterable[PodFact]) -> Iterator[PodFact]:
    """The unbound pods that need a new node: pods that kube-scheduler cannot place, and untried pods like them.

    kube-scheduler takes time for many pods. An untried pod with the template of an unschedulable one will get the same
    result, so planning does not wait for it."""
    unschedulable, untried = dict[str, PodFact](), list[PodFact]()
    for pod in unbound_pods:
        if is_provisionable(pod):
            unschedulable.setdefault(pod.owner_uid, pod)
            yield pod
        elif pod.untried and pod.owner_uid and needs_node(pod):
            untried.append(pod)
    yield from (
        pod for pod in untried if pod.owner_uid in unschedulable and _share_template(pod, unschedulable[pod.owner_uid])
    )


def _share_template(pod: PodFact, unschedulable: PodFact) -> bool:
    """Pods of one owner share a template and differ only in per-pod fields."""
    template_fields = ("requests", "devices", "volumes", "node_selector", "required_terms", "tolerations")
    return all(getattr(pod, one) == getattr(unschedulable, one) for one in template_fields)


def is_provisionable(pod: PodFact) -> bool:
    """Whether kube-scheduler cannot place the pod, and it needs a node (reference 2.2)."""
    return pod.unschedulable and needs_node(pod)


def needs_node(pod: PodFact) -> bool:
    assigned_node = pod.node_name or pod.nominated_node
    return not (assigned_node or pod.daemonset or pod.mirror or pod.deleting or pod.is_finished)


def is_reschedulable(pod: PodFact, now: datetime) -> bool:
    """Whether the pod on a disrupted node will be recreated elsewhere (reference 2.2)."""
    return is_recreated_elsewhere(pod) and not is_do_not_disrupt(pod, now)


def is_recreated_elsewhere(pod: PodFact) -> bool:
    """As `is_reschedulable`, also for a pod that may not be evicted."""
    return pod.is_alive and not (pod.daemonset or pod.mirror or is_pinned(pod))


class StartingPods:
    """Pods of Deployments that are not Ready yet, with or without a node."""

    def __init__(self) -> None:
        self._by_deployment: dict[Hashable, dict[str, PodFact]] = {}
        """By UID in each Deployment. No Deployment is without pods."""

    def update(self, old: PodFact | None, new: PodFact | None) -> None:
        """A pod was added, changed or deleted. `old`: as in the last update."""
        if old is not None and _is_starting(old):
            pods = self._by_deployment[deployment := _deployment_of(old)]
            del pods[old.uid]
            if not pods:
                del self._by_deployment[deployment]
        if new is not None and _is_starting(new):
            self._by_deployment.setdefault(_deployment_of(new), {})[new.uid] = new

    def find_replaced(self, pods: Iterable[PodFact]) -> set[str]:
        """UIDs of the pods that a rollout replaces: each starting pod takes the place of one older pod of another
        ReplicaSet of its Deployment once it is Ready."""
        older: dict[Hashable, list[PodFact]] = {}
        for pod in pods if self._by_deployment else ():
            if (deployment := _deployment_of(pod)) in self._by_deployment:
                older.setdefault(deployment, []).append(pod)
        replaced = set[str]()
        for deployment, group in older.items():
            starting = sorted(self._by_deployment[deployment].values(), key=_creation)
            newer = Counter[str]()
            """Starting pods that replace no pod yet, by ReplicaSet."""
            for pod in sorted(group, key=_creation, reverse=True):
                while starting and starting[-1].created > pod.created:
                    newer[starting.pop().owner_uid] += 1
                other = next((owner for owner, count in newer.items() if count and owner != pod.owner_uid), None)
                if other is not None:
                    newer[other] -= 1
                    replaced.add(pod.uid)
        return replaced


def _is_starting(pod: PodFact) -> bool:
    return not pod.ready and pod.is_alive and _deployment_of(pod) is not None


def _deployment_of(pod: PodFact) -> Hashable:
    """Equal for the pods of one Deployment, which differ only in the label pod-template-hash; None for other pods."""
    if pod.owner_kind != "ReplicaSet" or POD_TEMPLATE_HASH not in pod.labels:
        return None
    return pod.namespace, frozenset({**pod.labels, POD_TEMPLATE_HASH: ""}.items())


def _creation(pod: PodFact) -> tuple[datetime, str]:
    return pod.created, pod.uid


def is_pinned(pod: PodFact) -> bool:
    """Whether the pod can run only on its present node, so that it ends with that node."""
    if not pod.node_name or not (pod.required_terms or HOSTNAME in pod.node_selector):
        return False
    own = (pod.node_name,)
    return pod.node_selector.get(HOSTNAME) == pod.node_name or (
        bool(pod.required_terms)
        and all(
            any(one.key in (HOSTNAME, NODE_NAME_FIELD) and one.operator == IN and one.values == own for one in term)
            for term in pod.required_terms
        )
    )


def is_do_not_disrupt(pod: PodFact, now: datetime) -> bool:
    """Whether do-not-disrupt applies: `true` without an end, a duration from the pod's start."""
    if not pod.do_not_disrupt:
        return False
    until = do_not_disrupt_until(pod)
    return until is None or now < until


def do_not_disrupt_until(pod: PodFact) -> datetime | None:
    """When its do-not-disrupt ends; None for never. An invalid value ends at the pod's creation."""
    annotation = pod.do_not_disrupt
    try:
        duration = None if annotation == "true" else parse_duration(annotation)
    except DurationError:
        return pod.created
    return None if duration is None else (pod.started or pod.created) + duration


def excludes_nodepools(pod: PodFact) -> bool:
    """Whether every required term excludes nodes of NodePools, so that Tenure cannot serve the pod."""
    if not pod.required_terms:
        return False
    return all(any(e.key == NODEPOOL and e.operator == DOES_NOT_EXIST for e in term) for term in pod.required_terms)


def validation_error(pod: PodFact, constraints: Constraints | None = None) -> str:
    """Why this pod cannot be planned; empty if it can. Invalid preferences are ignored.

    `constraints`: of a pod without excessive terms (`PlannerGuard`), if known."""
    if problem := pod.unplannable or (find_excessive_terms(pod) if constraints is None else ""):
        return problem
    if not pod.required_terms:
        return ""
    if not any(pod.required_terms):
        return "its node affinity has no expressions, which no node satisfies"
    try:
        node_requirement_alternatives(constraints or constraints_of(pod))
    except RequirementError as error:
        return f"its node affinity is not valid: {error}"
    return ""


def find_excessive_terms(pod: PodFact) -> str:
    """Which constraints take too long to plan, with their number and the largest accepted one; empty if none do."""
    if not (pod.required_terms or pod.preferred_terms or pod.spreads or pod.affinity or pod.anti_affinity):
        return ""
    selectors = [one.selector for one in pod.spreads]
    selectors += [one.selector for one in (*pod.affinity, *pod.anti_affinity)]
    selector_values = 0
    for selector in selectors:
        for selected in selector or ():
            selector_values += 1 + len(selected.values)
    values, combinations = 0, 1
    if pod.required_terms or pod.preferred_terms:
        combinations, required = count_combinations(pod), max(1, len(pod.required_terms))
        values = combinations // required * sum(1 + len(one.values) for term in pod.required_terms for one in term)
        values += required * sum(1 + len(one.values) for term in pod.preferred_terms for one in term.expressions)
    for name, count, most, counted in (
        ("spec.affinity", combinations, MAX_COMBINATIONS, "combinations of required terms and preferences"),
        ("spec.affinity.nodeAffinity", values, MAX_COMBINED_VALUES, "values in all combinations of terms"),
        (TOPOLOGY_FIELDS, len(selectors), MAX_TOPOLOGY_TERMS, "terms"),
        (TOPOLOGY_FIELDS, selector_values, MAX_SELECTOR_VALUES, "expressions and values of label selectors"),
    ):
        if count > most:
            return f"{name}: {count} {counted}, expected at most {most}; remove terms, or split the workload"
    return ""


def count_combinations(pod: PodFact) -> int:
    """Of each required node affinity term with each preference, and without preferences."""
    soft = [one for one in pod.spreads if not one.hard]
    weighted = [one for one in (*pod.affinity, *pod.anti_affinity) if one.weight]
    return max(1, len(pod.required_terms)) * (1 + len(pod.preferred_terms) + len(soft) + len(weighted))


def constraints_of(pod: PodFact) -> Constraints:
    if not (pod.node_selector or pod.required_terms or pod.preferred_terms or pod.tolerations):
        return ANYWHERE
    selector = tuple(sorted(pod.node_selector.items()))
    return Constraints(selector, pod.required_terms, pod.preferred_terms, pod.tolerations)


@lru_cache(maxsize=1 << 14)
def node_requirement_alternatives(constraints: Constraints) -> tuple[Requirements, ...]:
    """The node selector combined with each term of the required node affinity, without preferences."""
    selector = Requirements(one_of(key, value) for key, value in constraints.node_selector)
    # In Kubernetes, a term without expressions matches no node.
    terms = filter(None, constraints.required_terms) if constraints.required_terms else ((),)
    return tuple(selector.intersection(Requirements.from_expressions(term)) for term in terms)


class PodCaches:
    """Cached results for the constraints of pods. A pod may have thousands of values, and pods may come and go."""

    def __init__(self) -> None:
        self._cached: list[Any] = [*REQUIREMENT_CACHES, node_requirement_alternatives]
        self._values = 0

    def register(self, *cached: Any) -> None:
        """Functions with `lru_cache`."""
        self._cached += cached

    def add_pod(self, pod: PodFact) -> bool:
        """Clear the caches if new and changed pods had too many values since the last time; True if so. Not during a
        pass, since equal values share one object in it."""
        values = _count_values(pod)
        if values > _MAX_FEW_VALUES:
            self._values += values
        if self._values <= MAX_CACHED_VALUES:
            return False
        for one in self._cached:
            one.cache_clear()
        self._values = 0
        return True


CACHES: Final = PodCaches()


def _count_values(pod: PodFact) -> int:
    selectors = (one.selector or () for ones in (pod.spreads, pod.affinity, pod.anti_affinity) for one in ones)
    terms = (*pod.required_terms, *(one.expressions for one in pod.preferred_terms), *selectors)
    own = sum(map(len, (pod.node_selector, pod.tolerations, pod.host_ports, pod.requests)))
    return own + sum(1 + len(one.values) for term in terms for one in term)
