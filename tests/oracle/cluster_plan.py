"""Plans a random cluster from the objects that an API server returns, and compares bound pods with the plan."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tenure.apis.labels import HOSTNAME, NODE_NAME_FIELD
from tenure.kube.facts.objects import namespace_fact, node_fact, nodepool_fact
from tenure.kube.facts.pod_admission import PodAdmission, runtime_class_defaults
from tenure.kube.facts.pods import daemonset_fact, pod_fact
from tenure.kube.facts.volumes import csi_node_fact, storage_class_fact, volume_claim_fact, volume_fact
from tenure.model.facts import DaemonSetFact, NamespaceFact, NodeFact, PodFact
from tenure.model.instance_types import Catalogue
from tenure.scheduling.cluster_state import Change, ClusterState
from tenure.scheduling.snapshot import Fact, FactKind
from tests.oracle.binding_order import BindingOrder, find_bindable, find_binding_order
from tests.oracle.manifests import node_manifest
from tests.oracle.plan import awaited_daemon_pods, launch_outcomes
from tests.oracle.random_cluster import RandomCluster, shared_objects
from tests.oracle.random_pods import CLUSTER, Object

NOW: Final = datetime(2100, 1, 1, tzinfo=UTC)
ObjectLists = Mapping[str, list[Object]]
"""Objects of all clusters by kind, as the API server returns them."""
_FACTS: Final[Mapping[str, tuple[FactKind, Callable[[Object], Fact]]]] = {
    "Namespace": ("namespace", namespace_fact),
    "StorageClass": ("storage_class", storage_class_fact),
    "PersistentVolume": ("volume", volume_fact),
    "PersistentVolumeClaim": ("volume_claim", volume_claim_fact),
    "CSINode": ("csi_node", csi_node_fact),
    "DaemonSet": ("daemonset", lambda one: _daemonset_fact(one)),
    "Node": ("node", node_fact),
    "Pod": ("pod", lambda pod: _unschedulable_pod(pod)),
}
KINDS: Final = tuple(_FACTS)


@dataclass(frozen=True)
class ClusterPlan:
    """The plan of a cluster, with one of the possible launches of each NodeClaim."""

    cluster: RandomCluster
    nodes: Mapping[str, Object]
    """Planned nodes by name."""
    targets: Mapping[str, str]
    """Existing or planned node by pod name."""
    order: BindingOrder
    rejected: frozenset[str]
    """Names of the pods that the plan does not place."""
    daemon_pods: frozenset[tuple[str, str]] = frozenset()
    """UID of the DaemonSet and node of each pod that kube-scheduler can bind before the others."""

    def is_expected(self, pod: Object) -> bool:
        """Whether kube-scheduler must be able to bind this pod: it has a target, or is a DaemonSet's on a new node."""
        if not is_daemon_pod(pod):
            return pod["metadata"]["name"] in self.targets
        found = key_of_daemon_pod(pod)
        return found in self.daemon_pods and found[1] in self.nodes


@dataclass(frozen=True)
class StuckPod:
    """A pod that kube-scheduler does not bind although the plan has a node for it."""

    name: str
    target: str
    message: str
    """Of kube-scheduler."""


@dataclass(frozen=True)
class Comparison:
    """The places that kube-scheduler found for the pods of one cluster."""

    plan: ClusterPlan
    stuck: tuple[StuckPod, ...]
    elsewhere: Mapping[str, str]
    """Node by name of the pods that are bound to another node than planned, which is as valid."""
    unplanned: tuple[str, ...] = ()
    """Pods that the plan rejects and kube-scheduler binds after all others."""

    @property
    def planned(self) -> int:
        """Number of pods with a node in the plan."""
        return len(self.plan.targets)

    def describe(self) -> str:
        """The seed and the disagreements, with the whole plan if a pod is stuck."""
        lines = [f"seed {self.plan.cluster.seed}: {len(self.stuck)} of {self.planned} planned pods are not bound"]
        unbindable = self.plan.order.unbindable
        for one in self.stuck:
            cause = "no order found; " if one.name in unbindable else ""
            lines.append(f"  {one.name}, planned on {one.target}: {cause}{one.message}")
        targets = self.plan.targets
        lines += [f"  {name}, planned on {targets[name]}, is bound to {node}" for name, node in self.elsewhere.items()]
        lines += [f"  {name} is bound without a plan" for name in self.unplanned]
        if self.stuck:
            lines.append(f"  plan: {', '.join(f'{name} on {targets[name]}' for name in self.plan.order.names)}")
        return "\n".join(lines)


def plan_cluster(cluster: RandomCluster, lists: ObjectLists) -> ClusterPlan:
    """Plan, and choose a random instance type and offering for each NodeClaim."""
    plan = build_cluster_state(cluster, lists).provision(now=NOW)
    targets, nodes = dict(plan.nominations), {}
    dice, types = random.Random(cluster.seed), {one.name: one for one in cluster.types}
    for number, claim in enumerate(plan.claims):
        kind, offering, labels = dice.choice(list(launch_outcomes(claim, types)))
        name = f"c{cluster.seed}-planned-{number}"
        nodes[name] = node_manifest(name, kind, offering, labels, [one.model_dump() for one in claim.taints])
        targets |= dict.fromkeys(claim.pods, name)
    order, daemon_pods = _find_order(cluster, lists, targets, nodes.values())
    rejected = frozenset(one.name for one in plan.unschedulable)
    return ClusterPlan(cluster, nodes, targets, order, rejected, daemon_pods)


def _find_order(
    cluster: RandomCluster, lists: ObjectLists, targets: Mapping[str, str], planned_nodes: Iterable[Object]
) -> tuple[BindingOrder, frozenset[tuple[str, str]]]:
    """Also returns the DaemonSet and the node of each pod of DaemonSets."""
    facts = [change.fact for change in _changes_of(cluster, lists)]
    nodes = [one for one in facts if isinstance(one, NodeFact)]
    for one in planned_nodes:
        nodes.append(
            node_fact({**one, "metadata": {"uid": "", "creationTimestamp": NOW.isoformat(), **one["metadata"]}})
        )
    namespaces = {one.name: one.labels for one in facts if isinstance(one, NamespaceFact)}
    daemons = [one for one in facts if isinstance(one, DaemonSetFact)]
    pods = [one for one in facts if isinstance(one, PodFact) and not one.daemonset]
    awaited = list[PodFact]()
    for node in nodes:
        labels = {HOSTNAME: node.name, NODE_NAME_FIELD: node.name, **node.labels}
        found = awaited_daemon_pods(daemons, labels, node.taints, frozenset(), node.allocatable)
        awaited += [one.model_copy(update={"node_name": node.name}) for one in found]
    daemon_pods = find_bindable(awaited, pods, nodes, namespaces)
    order = find_binding_order(targets, [*pods, *daemon_pods], nodes, namespaces)
    return order, frozenset((one.uid, one.node_name) for one in daemon_pods)


def build_cluster_state(cluster: RandomCluster, lists: ObjectLists) -> ClusterState:
    """The planner's state with the NodePools of a cluster and its objects among those of all clusters."""
    state = ClusterState()
    state.set_catalogue(Catalogue(by_node_class={"default": cluster.types}))
    for pool in cluster.pools:
        fact = nodepool_fact({**pool, "metadata": {**pool["metadata"], "uid": "1"}}).model_copy(update={"ready": True})
        state.apply([Change(kind="pool", key=fact.name, fact=fact)])
    state.apply(_changes_of(cluster, lists))
    return state


def compare_nodes(plan: ClusterPlan, pods: Mapping[str, Object]) -> Comparison:
    """`pods`: the cluster's pods by name."""
    bound = bound_nodes(pods)
    expected = {name: plan.targets.get(name, "") for name, pod in pods.items() if plan.is_expected(pod)}
    expected |= plan.targets
    stuck = [
        StuckPod(name, node or "a new node", scheduler_message(pods[name]) if name in pods else "the pod is gone")
        for name, node in expected.items()
        if name not in bound
    ]
    elsewhere = {name: bound[name] for name, node in plan.targets.items() if bound.get(name, node) != node}
    return Comparison(plan, tuple(stuck), elsewhere)


def bound_nodes(pods: Mapping[str, Object]) -> dict[str, str]:
    """Node by pod name."""
    return {name: pod["spec"]["nodeName"] for name, pod in pods.items() if pod["spec"].get("nodeName")}


def scheduler_message(pod: Object) -> str:
    """Why kube-scheduler did not bind the pod in its last attempt; empty before the first."""
    conditions = pod["status"].get("conditions") or ()
    attempts = (one for one in conditions if one["type"] == "PodScheduled" and one.get("reason") != "SchedulingGated")
    return next((one.get("message", "") for one in attempts), "")


def label_of(one: Object, key: str) -> str:
    found: str = (one["metadata"].get("labels") or {}).get(key, "")
    return found


def _changes_of(cluster: RandomCluster, lists: ObjectLists) -> Iterator[Change]:
    for kind, (fact_kind, build_fact) in _FACTS.items():
        for one in lists[kind]:
            metadata = one["metadata"]
            if kind == "StorageClass" or _is_part(cluster, one):
                name = metadata["uid"] if kind == "DaemonSet" else metadata["name"]
                key = f"{metadata['namespace']}/{name}" if kind == "PersistentVolumeClaim" else name
                yield Change(kind=fact_kind, key=key, fact=build_fact(one))


def _is_part(cluster: RandomCluster, one: Object) -> bool:
    metadata, site = one["metadata"], cluster.site
    named: Iterable[Any] = (metadata.get("namespace"), metadata["name"])
    return label_of(one, CLUSTER) == site.cluster or any(name in (*site.namespaces, *site.nodes) for name in named)


def _daemonset_fact(one: Object) -> Fact:
    """With the overhead of the RuntimeClass, which the API server adds to its pods."""
    admission = PodAdmission()
    for shared in shared_objects():
        if shared["kind"] == "RuntimeClass":
            admission.set_runtime_class(shared["metadata"]["name"], runtime_class_defaults(shared))
    return daemonset_fact(one, admission.apply_defaults(one["spec"]["template"]["spec"], one["metadata"]["namespace"]))


def _unschedulable_pod(pod: Object) -> Fact:
    """Its name is its UID, so that the order of pods does not depend on the API server."""
    fact = pod_fact({**pod, "metadata": {**pod["metadata"], "uid": pod["metadata"]["name"]}})
    return fact.model_copy(update={"unschedulable": not fact.node_name})


def is_daemon_pod(pod: Object) -> bool:
    return any(one["kind"] == "DaemonSet" for one in pod["metadata"].get("ownerReferences") or ())


def key_of_daemon_pod(pod: Object) -> tuple[str, str]:
    """The UID of the DaemonSet, and the node that its controller created the pod for."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return pod["metadata"]["ownerReferences"][0]["uid"], required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
