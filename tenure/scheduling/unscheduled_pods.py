"""The pods of one plan: pending pods, pods that leave terminating nodes, and virtual pods of CapacityBuffers."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from tenure.model.facts import NodeClaimFact, PodDisruptionBudgetFact, PodFact
from tenure.scheduling.pod_disruption_budgets import PodDisruptionBudgets
from tenure.scheduling.pods import StartingPods, excludes_nodepools, is_reschedulable, provisionable_pods
from tenure.scheduling.snapshot import ClusterFacts


class TerminatingNode(NamedTuple):
    nodeclaim: NodeClaimFact | None
    pods: Iterable[PodFact]
    is_interrupted: bool = False
    """AWS ends the instance, which the NodeClaim may not show yet."""

    @property
    def is_instance_ending(self) -> bool:
        return self.is_interrupted or (self.nodeclaim is not None and self.nodeclaim.instance_terminating)


def list_unscheduled_pods(facts: ClusterFacts, now: datetime) -> Iterator[PodFact]:
    terminating = [
        TerminatingNode(nodeclaim, facts.bound_to(name))
        for name, nodeclaim in sorted(_terminating_nodes(facts).items())
    ]
    unbound, budgets = facts.unbound_pods.values(), facts.pod_budgets.values()
    yield from pods_needing_nodes(unbound, terminating, budgets, facts.starting_pods, now)
    for pods in facts.virtual.values():
        yield from (pod for pod in pods if not excludes_nodepools(pod))


def pods_needing_nodes(
    unbound_pods: Iterable[PodFact],
    terminating: Collection[TerminatingNode],
    pod_budgets: Iterable[PodDisruptionBudgetFact],
    starting_pods: StartingPods,
    now: datetime,
) -> Iterator[PodFact]:
    """Pods that no node has room for, and pods that will leave their node.

    A pod that a PodDisruptionBudget holds on its node is not planned: its new node would stay empty while the drain
    waits. Neither is a pod that a rollout replaces, since the newer pod is planned or already bound. If the rollout
    stops, the drain evicts the pod, and its successor is pending. Where the instance ends, all pods are planned: their
    evictions do not wait for budgets or rollouts, and the successors need nodes at once.
    """
    yield from (pod for pod in provisionable_pods(unbound_pods) if not excludes_nodepools(pod))
    budgets = PodDisruptionBudgets(pod_budgets if terminating else ())
    drained = list[PodFact]()
    for node in terminating:
        pods = (pod for pod in node.pods if is_reschedulable(pod, now) and not excludes_nodepools(pod))
        if node.is_instance_ending:
            yield from pods
        else:
            drained += (pod for pod in pods if not budgets.hold_on_node(pod, node.nodeclaim))
    replaced = starting_pods.find_replaced(drained)
    yield from (pod for pod in drained if pod.uid not in replaced)


def _terminating_nodes(facts: ClusterFacts) -> dict[str, NodeClaimFact | None]:
    """The names of Nodes that end, with their NodeClaims."""
    found: dict[str, NodeClaimFact | None] = {node.name: None for node in facts.nodes.values() if node.deleting}
    for nodeclaim in facts.nodeclaims.values():
        is_ending = nodeclaim.deleting or nodeclaim.instance_terminating
        node = facts.node_of(nodeclaim) if found or is_ending else None
        if node and (is_ending or node.name in found):
            found[node.name] = nodeclaim
    return found
