"""An order in which kube-scheduler can bind the pods of a plan, each in its planned place.

kube-scheduler binds pods one by one. Topology spread and pod affinity that hold in the end need not hold for each pod
when it is bound, in any order.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tenure.model.facts import NodeFact, PodFact
from tests.oracle.plan import admits_pod, tolerates_taints_of
from tests.oracle.topology import HOSTNAME, Spot, topology_violations

NamespaceLabels = Mapping[str, Mapping[str, str]]


def find_binding_order(
    targets: Mapping[str, str], pods: Iterable[PodFact], nodes: Iterable[NodeFact], namespaces: NamespaceLabels
) -> Iterator[str]:
    """Names of the pods with a target. Higher priorities come first, then pods with hard topology spread, which pods
    without it may exceed later. The next pod is the first that can be bound; if there is none, any.

    `targets`: node by pod name; `namespaces`: labels by namespace.
    """
    every = list(pods)
    spots = {
        node.name: Spot(
            node.name,
            {key: frozenset({value}) for key, value in {**node.labels, HOSTNAME: node.name}.items()},
            node.taints,
            [pod for pod in every if pod.node_name == node.name],
            frozenset(),
        )
        for node in nodes
    }
    waiting = sorted((pod for pod in every if pod.name in targets), key=_queue_order)
    while waiting:
        trials = ((pod, _add_pod(spots[targets[pod.name]], pod)) for pod in waiting)
        pod = next((pod for pod, spot in trials if _can_bind(spot, spots, namespaces)), waiting[0])
        waiting.remove(pod)
        spots[targets[pod.name]] = replace(_add_pod(spots[targets[pod.name]], pod), planned=frozenset())
        yield pod.name


def _queue_order(pod: PodFact) -> tuple[int, bool]:
    return -pod.priority, not any(one.hard for one in pod.spreads)


def _add_pod(spot: Spot, pod: PodFact) -> Spot:
    return replace(spot, pods=[*spot.pods, pod], planned=frozenset({pod.uid}))


def _can_bind(trial: Spot, spots: Mapping[str, Spot], namespaces: NamespaceLabels) -> bool:
    after = {**spots, trial.name: trial}.values()
    return not any(topology_violations([*after], namespaces, admits_pod, tolerates_taints_of))
