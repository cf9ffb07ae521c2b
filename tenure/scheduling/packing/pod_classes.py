"""Classes of interchangeable pods, in the order in which they are placed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import numpy as np

from tenure.apis.resources import CPU, MEMORY
from tenure.model.facts import HostPort, PodFact, Taint
from tenure.scheduling.instance_type_table import Amounts
from tenure.scheduling.packing.patterns import Sizes
from tenure.scheduling.packing.planning_budget import (
    ALTERNATIVE_STEPS,
    PLACEMENT_STEPS,
    BudgetExceededError,
    PlanningBudget,
)
from tenure.scheduling.packing.pod_requirements import NO_VOLUME_TERMS, PodShape, VolumeTerms
from tenure.scheduling.packing.topology import UNLIMITED, TopologyGroup, new_node_cap
from tenure.scheduling.packing.topology_rules import ConstraintAlternative, PodTopologyGroups, TopologyGroups
from tenure.scheduling.pods import Constraints
from tenure.scheduling.taints import tolerates


@dataclass(slots=True, eq=False)
class PodClass:
    """Interchangeable pods, oldest first. Placed pods are removed from `pods`."""

    pods: list[PodFact]
    requests: dict[str, int]
    alternatives: tuple[ConstraintAlternative, ...]
    counting_groups: tuple[TopologyGroup, ...]
    ports: tuple[HostPort, ...] = ()
    volumes: VolumeTerms = NO_VOLUME_TERMS
    size: int = -1
    """The index of its requests in `CapacityValuation.sizes`; -1 without one."""
    launch_blocker: str = ""
    """Why no node may be launched for them; empty if one may."""
    launchable: bool = True
    """Whether a type fits such a pod, without regard to limits and reserved capacity. Not with a `launch_blocker`."""


def merge_equal_shapes(
    shaped_pods: Iterable[tuple[PodShape, PodFact]], taints: Iterable[Taint]
) -> Iterator[tuple[PodShape, PodFact]]:
    """The pods with one object for equal shapes. Tolerations that match none of the `taints` have no effect and are
    left out."""
    known_taints, merged = tuple(taints), dict[PodShape, PodShape]()
    by_id: dict[int, tuple[PodShape, PodShape]] = {}
    """The original keeps its ID in use."""
    for shape, pod in shaped_pods:
        if id(shape) not in by_id:
            simple = shape._replace(constraints=_with_relevant_tolerations(shape.constraints, known_taints))
            by_id[id(shape)] = shape, merged.setdefault(simple, simple)
        yield by_id[id(shape)][1], pod


def _with_relevant_tolerations(constraints: Constraints, taints: Iterable[Taint]) -> Constraints:
    relevant = tuple(one for one in constraints.tolerations if any(tolerates(one, taint) for taint in taints))
    return constraints if relevant == constraints.tolerations else replace(constraints, tolerations=relevant)


def limit_requests(requests: Mapping[str, int], available: Set[str]) -> dict[str, int]:
    """The requests without resources that no node has, except the first one. It is enough to reject the pod, and each
    resource takes a column of all nodes."""
    missing = min((key for key, amount in requests.items() if amount > 0 and key not in available), default="")
    return {key: amount for key, amount in requests.items() if key in available or key == missing}


_FREE_ALTERNATIVES: Final = 20
"""Of one class, without the budget."""
_AGE_ORDER: Final = attrgetter("created", "uid")
_ClassKey = tuple[int, PodTopologyGroups, int, str]
"""Number of the shape, topology groups, priority and launch blocker."""


def build_pod_classes(
    pods: Iterable[tuple[PodShape, PodFact]],
    topology_groups: TopologyGroups,
    policy: str,
    budget: PlanningBudget,
    available: Set[str],
    launch_blockers: Mapping[str, str] = MappingProxyType({}),
) -> list[PodClass]:
    """Sorted by priority, CPU, memory, age and UID (reference 2.4).

    `available`: the resources that a node has; `launch_blockers`: as in PassInputs."""
    by_id: dict[int, tuple[PodShape, list[PodFact]]] = {}
    """A shape may have thousands of terms, so its hash is not computed for each pod."""
    for shape, pod in pods:
        by_id.setdefault(id(shape), (shape, []))[1].append(pod)
    numbers, pods_by_key = dict[PodShape, int](), dict[_ClassKey, tuple[PodShape, list[PodFact]]]()
    for shape, alike in by_id.values():
        number = numbers.setdefault(shape, len(numbers))
        for pod in alike:
            groups, blocker = topology_groups.groups_of(pod, shape.topology_terms), launch_blockers.get(pod.uid, "")
            key = number, groups, pod.priority, blocker
            pods_by_key.setdefault(key, (shape, []))[1].append(pod)
    found = [
        PodClass(
            pods=sorted(members, key=_AGE_ORDER),
            requests=limit_requests(dict(shape.requests), available),
            alternatives=_list_alternatives(
                topology_groups.constraint_alternatives(shape, members[0], policy), members, budget
            ),
            counting_groups=groups.counting,
            ports=shape.ports,
            volumes=shape.volumes,
            launch_blocker=reason,
        )
        for (_, groups, _, reason), (shape, members) in pods_by_key.items()
    ]
    return sorted(found, key=_queue_order)


def _list_alternatives(
    every: Iterator[ConstraintAlternative], pods: Sequence[PodFact], budget: PlanningBudget
) -> tuple[ConstraintAlternative, ...]:
    """All alternatives, or the first ones of a class that exceeds the budget."""
    found = [*islice(every, _FREE_ALTERNATIVES)]
    if len(found) == _FREE_ALTERNATIVES and pods[-1].uid not in budget.exceeded:
        try:
            with budget.share(len(pods)):
                for one in every:
                    budget.spend(ALTERNATIVE_STEPS + PLACEMENT_STEPS * one.is_relaxed)
                    found.append(one)
        except BudgetExceededError:
            reason = "spec.affinity: planning takes too long for its combinations of required terms and preferences"
            budget.exceeded |= dict.fromkeys((pod.uid for pod in pods), f"{reason}; expected fewer terms")
    return tuple(found)


def min_node_count(classes: Sequence[PodClass]) -> int:
    """The number of nodes that hostname rules require, whatever their size."""
    nodes_by_group: dict[TopologyGroup, int] = {}
    for one in classes:
        for rule in one.alternatives[0].rules:
            if rule.group.hostname and new_node_cap((rule,)) < len(one.pods):
                cap = max(1, new_node_cap((rule,)))
                nodes_by_group[rule.group] = nodes_by_group.get(rule.group, 0) + -(-len(one.pods) // cap)
    return max(nodes_by_group.values(), default=0)


def pod_granularity(vectors: Amounts, counts: Amounts) -> Amounts:
    """The amount of each resource by which pods can fill the rest of a node: 1/50 of the demand is in requests of at
    most this size. Capacity of a node beyond a multiple of it stays unused.

    `vectors`: the requests of each class; `counts`: its pods.
    """
    if not len(vectors):
        return np.zeros(vectors.shape[1], dtype=np.int64)
    order = np.argsort(vectors, axis=0)
    amounts = np.take_along_axis(vectors, order, axis=0)
    so_far = np.cumsum(amounts * counts[order], axis=0)
    first = np.argmax(so_far * 50 >= so_far[-1], axis=0)
    return np.asarray(amounts[first, np.arange(vectors.shape[1])], dtype=np.int64)


def max_pods_per_node(classes: Sequence[PodClass]) -> Amounts:
    """For each class, the most of its pods that rules allow on a new node."""
    return np.array(
        [min(len(one.pods), new_node_cap(one.alternatives[0].rules) or len(one.pods)) for one in classes],
        dtype=np.int64,
    )


def number_sizes(classes: Sequence[PodClass], vectors: Amounts, pods: Amounts, caps: Amounts) -> Sizes:
    """The distinct requests of these classes. Sets `size` of each class. `pods`: the number of each class; `caps`: the
    most of them on a node."""
    known: dict[bytes, int] = {}
    for one, vector in zip(classes, vectors, strict=True):
        one.size = known.setdefault(vector.tobytes(), len(known))
    counts, most = np.zeros(len(known), dtype=np.int64), np.zeros(len(known), dtype=np.int64)
    sizes = np.array([one.size for one in classes], dtype=np.intp)
    np.add.at(counts, sizes, pods)
    np.add.at(most, sizes, caps)
    first = np.unique(sizes, return_index=True)[1]
    return Sizes(vectors[first], counts, most)


def _queue_order(one: PodClass) -> tuple[int, bool, int, int, datetime, str]:
    """Pods with a limit per node come before unlimited pods, which can fill the rest of their nodes."""
    first = one.pods[0]
    anywhere = new_node_cap(one.alternatives[0].rules) == UNLIMITED
    return -first.priority, anywhere, -one.requests.get(CPU, 0), -one.requests.get(MEMORY, 0), first.created, first.uid
