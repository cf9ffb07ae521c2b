"""What no plan can undercut: the lowest price of nodes whose room covers all pods, as a linear programme.

It knows which pods may use which pools, types, zones and capacity types, what DaemonSets take, and how many nodes
rules about single nodes make necessary. It leaves out that pods and nodes are whole, that a pod's CPU and memory have
to be on the same node, that pools have weights and limits, every other rule about other pods, and all preferences. So
the true optimum is above it: little for small pods that may go anywhere, much where rules decide.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from model.catalogue import InstanceType, Offering
from model.facts import DaemonSetFact, PodFact, PoolFact
from model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, ZONE, ZONE_ID
from scheduling.validation import endures, matches, selects

Room = tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """Pods that may go to the same places, and what they ask for together."""

    example: PodFact
    asked: Mapping[str, int]


@dataclass(frozen=True)
class Node:
    """The cheapest of the nodes with this room that the same kinds may use."""

    room: Room
    usable: tuple[bool, ...]
    price: float


def lower_bound(
    pods: Sequence[PodFact],
    pools: Iterable[PoolFact],
    types: Iterable[InstanceType],
    daemons: Sequence[DaemonSetFact] = (),
) -> float:
    """US dollars an hour. Raises ValueError where no set of nodes could hold the pods."""
    kinds = _kinds(pods)
    resources = sorted({key for kind in kinds for key in kind.asked})
    nodes = _cheapest(kinds, resources, pools, tuple(types), daemons)
    return _solve(kinds, resources, nodes, needed_nodes(pods))


def needed_nodes(pods: Iterable[PodFact]) -> int:
    """At least so many, since pods keep apart from their own kind, or spread over nodes with a skew."""
    most = Counter[tuple[object, ...]]()
    for pod in pods:
        mine = pod.labels.items()
        for term in pod.anti_affinity:
            if term.key == HOSTNAME and not term.weight and _selects_itself(pod, term.selector):
                most["apart", pod.namespace, frozenset(mine), term] += 1
        for one in pod.spreads:
            if one.key == HOSTNAME and one.hard and _selects_itself(pod, one.selector):
                most["spread", pod.namespace, frozenset(mine), one, one.max_skew] += 1
    return max((-(-count // (key[-1] if isinstance(key[-1], int) else 1)) for key, count in most.items()), default=0)


def _selects_itself(pod: PodFact, selector: Sequence[object] | None) -> bool:
    return selector is not None and all(matches(pod.labels, one) for one in selector)  # type: ignore[arg-type]


def _kinds(pods: Iterable[PodFact]) -> list[Kind]:
    examples: dict[object, PodFact] = {}
    asked: dict[object, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        key = (tuple(sorted(pod.node_selector.items())), pod.required_terms, pod.tolerations)
        examples.setdefault(key, pod)
        asked[key].update(pod.requests)
    return [Kind(examples[key], {name: n for name, n in asked[key].items() if n}) for key in examples]


def _cheapest(
    kinds: Sequence[Kind],
    resources: Sequence[str],
    pools: Iterable[PoolFact],
    types: Sequence[InstanceType],
    daemons: Sequence[DaemonSetFact],
) -> list[Node]:
    found: dict[tuple[Room, tuple[bool, ...]], float] = {}
    for pool in pools:
        for kind, offering, labels in _outcomes(pool, types):
            usable = tuple(selects(one.example, labels) and endures(one.example, pool.taints) for one in kinds)
            if any(usable):
                running = [one.pod for one in daemons if selects(one.pod, labels) and endures(one.pod, pool.taints)]
                key = _room(kind, running, resources), usable
                found[key] = min(found.get(key, offering.price), offering.price)
    return [Node(room, usable, price) for (room, usable), price in found.items()]


def _outcomes(pool: PoolFact, types: Iterable[InstanceType]) -> Iterator[tuple[InstanceType, Offering, dict[str, str]]]:
    for kind in types:
        single = {key: values[0] for key, values in kind.labels.items() if len(values) == 1}
        for offering in kind.offerings:
            labels = {
                **pool.template_labels,
                **single,
                NODEPOOL: pool.name,
                INSTANCE_TYPE: kind.name,
                ZONE: offering.zone,
                ZONE_ID: offering.zone_id,
                CAPACITY_TYPE: offering.capacity_type,
            }
            if offering.available and all(matches(labels, one) for one in pool.requirements):
                yield kind, offering, labels


def _room(kind: InstanceType, running: Iterable[PodFact], resources: Iterable[str]) -> Room:
    taken: Counter[str] = Counter()
    for pod in running:
        taken.update(pod.requests)
    allocatable = kind.allocatable()
    return tuple(max(0, allocatable.get(key, 0) - taken[key]) for key in resources)


def _solve(kinds: Sequence[Kind], resources: Sequence[str], nodes: Sequence[Node], least: int) -> float:
    """Nodes are bought in parts, and so is each resource shared out: by groups of nodes that the same kinds may use."""
    groups = sorted({node.usable for node in nodes})
    room = np.array([node.room for node in nodes], dtype=np.float64)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    bought = [solver.addVariable(lb=0, obj=node.price) for node in nodes]
    for column, key in enumerate(resources):
        total = float(sum(kind.asked.get(key, 0) for kind in kinds)) or 1.0
        given = {
            (number, group): solver.addVariable(lb=0)
            for group in groups
            for number, kind in enumerate(kinds)
            if group[number] and kind.asked.get(key)
        }
        for group in groups:
            there = [number for number, node in enumerate(nodes) if node.usable == group and room[number, column]]
            wanted = [one for (_, other), one in given.items() if other == group]
            if wanted:
                have = sum((room[number, column] / total * bought[number] for number in there), 0.0 * bought[0])
                solver.addConstr(have - sum(wanted) >= 0)
        for number, kind in enumerate(kinds):
            if kind.asked.get(key):
                parts = [one for (other, _), one in given.items() if other == number]
                if not parts:
                    raise ValueError(f"no pool has a node for pods such as {kind.example.name}")
                solver.addConstr(sum(parts) >= kind.asked[key] / total)
    solver.addConstr(sum(bought) >= least)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise ValueError(f"there is no lower bound: the solver says {solver.getModelStatus()}")
    return float(solver.getInfo().objective_function_value)
