"""A lower bound for the price of any plan: the minimum price of nodes for all pods, as a linear program.

Pods and nodes are divisible, but each part of a pod uses CPU and memory of the same type of node. The program respects
which pods may use which pools, types, zones and capacity types, the requests of DaemonSets, and the number of nodes
that hostname rules require. It ignores that pods and nodes are indivisible, weights and limits of pools, all other
rules between pods, and preferences. The true optimum is therefore higher: slightly for small pods without constraints,
considerably where rules decide.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import highspy
import numpy as np

from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, ZONE, ZONE_ID
from tenure.apis.resources import CPU
from tenure.model.facts import DaemonSetFact, NodePoolFact, PodFact
from tenure.model.instance_types import InstanceType, Offering
from tests.oracle.plan import matches_expression, selects_node, tolerates_taints

Headroom = tuple[int, ...]
_STEP: Final = 0.02
"""Step of the logarithm of a proportion: pods within 2 % are one kind."""


@dataclass(frozen=True)
class Kind:
    """Pods with the same constraints and the same proportions of requests, and the sum of their requests."""

    example: PodFact
    requests: Mapping[str, float]


@dataclass(frozen=True)
class Node:
    """The cheapest node with this capacity that the same kinds may use."""

    headroom: Headroom
    usable: tuple[bool, ...]
    price: float


def lower_bound(
    pods: Sequence[PodFact],
    pools: Iterable[NodePoolFact],
    types: Iterable[InstanceType],
    daemons: Sequence[DaemonSetFact] = (),
) -> float:
    """US dollars per hour. Raises ValueError if no set of nodes has capacity for the pods."""
    kinds = _group_kinds(pods)
    resources = sorted({key for kind in kinds for key in kind.requests})
    nodes = _cheapest_nodes(kinds, resources, pools, tuple(types), daemons)
    return _solve(kinds, resources, nodes, needed_nodes(pods))


def needed_nodes(pods: Iterable[PodFact]) -> int:
    """Minimum number of nodes because of anti-affinity to the same kind, or spread over nodes."""
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
    return selector is not None and all(matches_expression(pod.labels, one) for one in selector)  # type: ignore[arg-type]


def _group_kinds(pods: Iterable[PodFact]) -> list[Kind]:
    examples: dict[object, PodFact] = {}
    requests: dict[object, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        constraints = (tuple(sorted(pod.node_selector.items())), pod.required_terms, pod.tolerations)
        steps = _proportions(pod.requests)
        key = constraints, tuple(steps.items())
        examples.setdefault(key, pod)
        base = pod.requests.get(CPU, 0) or 1
        requests[key].update({name: base * math.exp(step * _STEP) for name, step in steps.items()})
    return [Kind(examples[key], dict(requests[key])) for key in examples]


def _proportions(requests: Mapping[str, int]) -> dict[str, int]:
    """Steps of each resource per millicore, rounded down, so that the bound is never too high."""
    base = requests.get(CPU, 0) or 1
    return {key: math.floor(math.log(amount / base) / _STEP) for key, amount in sorted(requests.items()) if amount}


def _cheapest_nodes(
    kinds: Sequence[Kind],
    resources: Sequence[str],
    pools: Iterable[NodePoolFact],
    types: Sequence[InstanceType],
    daemons: Sequence[DaemonSetFact],
) -> list[Node]:
    found: dict[tuple[Headroom, tuple[bool, ...]], float] = {}
    for pool in pools:
        for kind, offering, labels in _possible_nodes(pool, types):
            usable = tuple(
                selects_node(one.example, labels) and tolerates_taints(one.example, pool.taints) for one in kinds
            )
            if any(usable):
                running = [
                    one.pod
                    for one in daemons
                    if selects_node(one.pod, labels) and tolerates_taints(one.pod, pool.taints)
                ]
                key = _headroom_of(kind, running, resources), usable
                found[key] = min(found.get(key, offering.price), offering.price)
    return _remove_dominated([Node(headroom, usable, price) for (headroom, usable), price in found.items()])


def _remove_dominated(nodes: Sequence[Node]) -> list[Node]:
    """Remove nodes for whose price another node offers at least as much of each resource and as many nodes."""
    undominated: list[Node] = []
    offered = np.array([(*node.headroom, 1.0) for node in nodes]) / np.array([[node.price] for node in nodes])
    for number, node in enumerate(nodes):
        better = (offered >= offered[number]).all(axis=1) & (offered > offered[number]).any(axis=1)
        if not any(_covers_kinds(nodes[other].usable, node.usable) for other in np.flatnonzero(better).tolist()):
            undominated.append(node)
    return undominated


def _covers_kinds(one: tuple[bool, ...], other: tuple[bool, ...]) -> bool:
    return all(mine or not theirs for mine, theirs in zip(one, other, strict=True))


def _possible_nodes(
    pool: NodePoolFact, types: Iterable[InstanceType]
) -> Iterator[tuple[InstanceType, Offering, dict[str, str]]]:
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
            if offering.available and all(matches_expression(labels, one) for one in pool.requirements):
                yield kind, offering, labels


def _headroom_of(kind: InstanceType, running: Iterable[PodFact], resources: Iterable[str]) -> Headroom:
    taken: Counter[str] = Counter()
    for pod in running:
        taken.update(pod.requests)
    allocatable = kind.allocatable()
    return tuple(max(0, allocatable.get(key, 0) - taken[key]) for key in resources)


def _solve(kinds: Sequence[Kind], resources: Sequence[str], nodes: Sequence[Node], least: int) -> float:
    """Variables: number of each node, and the part of each kind that is on it."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    bought = [solver.addVariable(lb=0, obj=node.price) for node in nodes]
    parts_by_kind: list[list[Any]] = [[] for _ in kinds]
    for number, node in enumerate(nodes):
        parts = {one: solver.addVariable(lb=0) for one, usable in enumerate(node.usable) if usable}
        for one, part in parts.items():
            parts_by_kind[one].append(part)
        for column, key in enumerate(resources):
            terms = [kinds[one].requests[key] * part for one, part in parts.items() if kinds[one].requests.get(key)]
            if terms:
                unit = max(node.headroom[column], 1)
                solver.addConstr(sum(terms) * (1 / unit) <= (node.headroom[column] / unit) * bought[number])
    for kind, parts_of in zip(kinds, parts_by_kind, strict=True):
        if not parts_of:
            raise ValueError(f"no pool has a node for pods such as {kind.example.name}")
        solver.addConstr(sum(parts_of) >= 1)
    solver.addConstr(sum(bought) >= least)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise ValueError(f"no lower bound: the solver reports {solver.getModelStatus()}")
    return float(solver.getInfo().objective_function_value)
