"""The pods of one plan: pending pods, pods that leave terminating nodes, and virtual pods of CapacityBuffers."""

from collections.abc import Iterator
from datetime import datetime

from tenure.model.facts import NodeClaimFact, PodFact
from tenure.scheduling.pod_disruption_budgets import PodDisruptionBudgets
from tenure.scheduling.pods import is_reschedulable, provisionable_pods
from tenure.scheduling.snapshot import ClusterFacts


def list_unscheduled_pods(facts: ClusterFacts, now: datetime) -> Iterator[PodFact]:
    yield from provisionable_pods(facts.unbound_pods.values())
    yield from _pods_on_terminating_nodes(facts, now)
    for pods in facts.virtual.values():
        yield from pods


def _pods_on_terminating_nodes(facts: ClusterFacts, now: datetime) -> Iterator[PodFact]:
    """Pods that will leave their node. A pod that a PodDisruptionBudget holds there is not planned: its new node would
    stay empty while the drain waits."""
    terminating = _terminating_nodes(facts)
    budgets = PodDisruptionBudgets(facts.pod_budgets.values() if terminating else ())
    for name, nodeclaim in sorted(terminating.items()):
        for pod in facts.bound_to(name):
            if is_reschedulable(pod, now) and not budgets.hold_on_node(pod, nodeclaim):
                yield pod


def _terminating_nodes(facts: ClusterFacts) -> dict[str, NodeClaimFact | None]:
    """The names of Nodes that end, with their NodeClaims."""
    found: dict[str, NodeClaimFact | None] = {node.name: None for node in facts.nodes.values() if node.deleting}
    for nodeclaim in facts.nodeclaims.values():
        is_ending = nodeclaim.deleting or nodeclaim.instance_terminating
        node = facts.node_of(nodeclaim) if found or is_ending else None
        if node and (is_ending or node.name in found):
            found[node.name] = nodeclaim
    return found
