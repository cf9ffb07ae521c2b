"""An order in which kube-scheduler can bind the pods of a plan, each in its planned place.

kube-scheduler binds pods one by one. Topology spread and pod affinity that hold in the end need not hold for each pod
when it is bound, in any order.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tenure.model.facts import NodeFact, PodFact
from tests.oracle.plan import admits_pod, tolerates_taints_of
from tests.oracle.topology import HOSTNAME, Spot, topology_violations

_MAX_ATTEMPTS: Final = 30
NamespaceLabels = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class BindingOrder:
    names: tuple[str, ...]
    """Of all pods with a target."""
    unbindable: frozenset[str]
    """Names of the pods that kube-scheduler cannot bind where they are planned, in this order."""


def find_binding_order(
    targets: Mapping[str, str], pods: Iterable[PodFact], nodes: Iterable[NodeFact], namespaces: NamespaceLabels
) -> BindingOrder:
    """An order of the pods with a target. Higher priorities come first, then pods with hard topology spread, which
    pods without it may exceed later. The next pod is the first that can be bound; if there is none, any.

    If others prevent the binding of a pod, it and pods of its kind precede them in another attempt. The last attempts
    have a random order. Returns the order in which the most pods can be bound.

    `targets`: node by pod name; `namespaces`: labels by namespace.
    """
    every = list(pods)
    spots = _build_spots(every, nodes)
    preferred, attempts, dice = list[PodFact](), list[BindingOrder](), random.Random(len(targets))
    waiting = [pod for pod in every if pod.name in targets]
    while len(attempts) < _MAX_ATTEMPTS:
        waiting.sort(key=partial(_queue_order, preferred))
        order, stuck = _bind_pods([*waiting], targets, dict(spots), namespaces)
        attempts.append(BindingOrder(tuple(order), frozenset(one.name for one in stuck)))
        if not stuck:
            return attempts[-1]
        new = next((pod for pod in stuck if not any(_are_alike(pod, one) for one in preferred)), None)
        if new is not None:
            preferred.insert(0, new)
        else:
            dice.shuffle(waiting)
            dice.shuffle(preferred)
    return min(attempts, key=lambda one: len(one.unbindable))


def find_bindable(
    daemon_pods: Iterable[PodFact], pods: Iterable[PodFact], nodes: Iterable[NodeFact], namespaces: NamespaceLabels
) -> list[PodFact]:
    """The pods of DaemonSets that kube-scheduler can bind to their nodes, if it tries them before all others.

    Host ports and anti-affinity of running pods exclude some. `pods` without a node are ignored.
    """
    spots, bindable = _build_spots(list(pods), nodes), list[PodFact]()
    for pod in daemon_pods:
        trial = _add_pod(spots[pod.node_name], pod)
        if _can_bind(trial, spots, namespaces):
            spots[trial.name] = replace(trial, planned=frozenset())
            bindable.append(pod)
    return bindable


def _build_spots(pods: Sequence[PodFact], nodes: Iterable[NodeFact]) -> dict[str, Spot]:
    """The nodes with the pods that are bound to them."""
    return {
        node.name: Spot(
            node.name,
            {key: frozenset({value}) for key, value in {**node.labels, HOSTNAME: node.name}.items()},
            node.taints,
            [pod for pod in pods if pod.node_name == node.name],
            frozenset(),
        )
        for node in nodes
    }


def _bind_pods(
    waiting: list[PodFact], targets: Mapping[str, str], spots: dict[str, Spot], namespaces: NamespaceLabels
) -> tuple[list[str], list[PodFact]]:
    """An order of all waiting pods, and the pods that could not be bound when it was their turn."""
    order, stuck = list[str](), list[PodFact]()
    while waiting:
        trials = ((pod, _add_pod(spots[targets[pod.name]], pod)) for pod in waiting)
        pod = next((pod for pod, spot in trials if _can_bind(spot, spots, namespaces)), None)
        if pod is None:
            pod = waiting[0]
            stuck.append(pod)
        waiting.remove(pod)
        spots[targets[pod.name]] = replace(_add_pod(spots[targets[pod.name]], pod), planned=frozenset())
        order.append(pod.name)
    return order, stuck


def _are_alike(one: PodFact, other: PodFact) -> bool:
    return (one.labels, one.spreads, one.affinity, one.anti_affinity) == (
        other.labels,
        other.spreads,
        other.affinity,
        other.anti_affinity,
    )


def _queue_order(preferred: Sequence[PodFact], pod: PodFact) -> tuple[int, int, bool]:
    urgency = next((number for number, one in enumerate(preferred) if _are_alike(pod, one)), len(preferred))
    return -pod.priority, urgency, not any(one.hard for one in pod.spreads)


def _add_pod(spot: Spot, pod: PodFact) -> Spot:
    return replace(spot, pods=[*spot.pods, pod], planned=frozenset({pod.uid}))


def _can_bind(trial: Spot, spots: Mapping[str, Spot], namespaces: NamespaceLabels) -> bool:
    after = {**spots, trial.name: trial}.values()
    return not any(topology_violations([*after], namespaces, admits_pod, tolerates_taints_of))
