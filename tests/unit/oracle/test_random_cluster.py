"""Random clusters: a seed determines them, they have every implemented field, and their plans keep all constraints."""

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any, Final

import pytest

from tenure.apis.labels import PV_BIND_COMPLETED
from tenure.kube.facts.scheduling_fields import find_rejected_field
from tenure.scheduling.cluster_state import ClusterState
from tests.oracle.binding_order import BindingOrder
from tests.oracle.cluster_plan import (
    NOW,
    ClusterPlan,
    ObjectLists,
    build_cluster_state,
    compare_nodes,
    plan_cluster,
    scheduler_message,
)
from tests.oracle.plan import PlanInputs, find_violations
from tests.oracle.random_cluster import RandomCluster, generate_cluster, shared_objects
from tests.oracle.random_pods import Object
from tests.oracle.volumes import StorageInputs

FIELDS = """
nodeSelector nodeAffinity podAffinity podAntiAffinity topologySpreadConstraints matchFields namespaceSelector
matchLabelKeys mismatchLabelKeys minDomains nodeAffinityPolicy nodeTaintsPolicy hostPort hostNetwork hostIP
priorityClassName runtimeClassName initContainers persistentVolumeClaim tolerations unschedulable
allocatedResources PodResizePending allocatable limits nvidia.com/gpu ephemeral-storage
"""
MAX_UNBINDABLE_SHARE: Final = 0.001
REPAIRED: Final = (55, 95, 143, 158, 231, 270, 387, 438, 459, 622, 631, 1008, 1277, 1788, 2840, 3319, 3657, 3792)
"""Seeds whose former plans had pods that kube-scheduler could not bind: nodes of the same plan changed the counts of
their topology rules, pod affinity excluded a domain, or running pods excluded DaemonSet pods.
"""
_OVERHEAD: Final = {"cpu": "250m", "memory": "120Mi"}
_PRIORITIES: Final = {
    one["metadata"]["name"]: one["value"] for one in shared_objects() if one["kind"] == "PriorityClass"
}


def served(cluster: RandomCluster) -> ObjectLists:
    """The objects with the fields that an API server and its controllers add."""
    lists: dict[str, list[Object]] = defaultdict(list)
    for one in (*shared_objects(), *cluster.objects):
        metadata = {"uid": one["metadata"]["name"], "creationTimestamp": "2000-01-01T00:00:00Z", **one["metadata"]}
        added: dict[str, Any] = {"metadata": metadata}
        if one["kind"] == "PersistentVolumeClaim" and "volumeName" in one["spec"]:
            metadata["annotations"] = {PV_BIND_COMPLETED: "yes"}
        if one["kind"] == "Pod":
            added["spec"] = one["spec"] | ({"overhead": _OVERHEAD} if "runtimeClassName" in one["spec"] else {})
            added["spec"]["priority"] = _PRIORITIES.get(one["spec"].get("priorityClassName"), 0)
        lists[one["kind"]].append(one | added)
    return lists


def plan_inputs(cluster: RandomCluster, state: ClusterState) -> PlanInputs:
    facts = state._facts
    storage = facts.storage
    return PlanInputs(
        pods=facts.unbound_pods,
        pools=facts.pools,
        types={one.name: one for one in cluster.types},
        nodes=facts.nodes,
        bound={name: list(facts.bound_to(name)) for name in facts.nodes},
        daemons=facts.daemons,
        namespaces={name: one.labels for name, one in facts.namespaces.items()},
        disks=StorageInputs(
            claims=storage.claims, volumes=storage.volumes, classes=storage.classes, csi_nodes=storage.csi_nodes
        ),
    )


def test_seed_determines_the_cluster() -> None:
    assert generate_cluster(7) == generate_cluster(7)
    assert generate_cluster(7).pods != generate_cluster(8).pods


def test_clusters_have_every_implemented_field() -> None:
    text = json.dumps([generate_cluster(seed).objects for seed in range(100)])
    assert [one for one in FIELDS.split() if f'"{one}"' not in text] == []


def test_tenure_supports_every_generated_field() -> None:
    pods = [pod for seed in range(50) for pod in generate_cluster(seed).pods]
    assert [found for pod in pods if (found := find_rejected_field(pod["spec"], {}, ()))] == []


@pytest.mark.parametrize("seed", [*range(3), *REPAIRED])
def test_plans_of_random_clusters_keep_all_constraints(seed: int) -> None:
    """kube-scheduler can bind the pods one by one, each on its planned node."""
    cluster = generate_cluster(seed)
    lists = served(cluster)
    state = build_cluster_state(cluster, lists)
    plan = state.provision(now=NOW)
    assert plan.claims
    assert find_violations(plan, plan_inputs(cluster, state)) == []
    carried_out = plan_cluster(cluster, lists)
    assert sorted(carried_out.order.names) == sorted(carried_out.targets)
    assert carried_out.order.unbindable == frozenset()


def test_pods_of_random_clusters_have_an_order_in_which_each_can_be_bound(pytestconfig: pytest.Config) -> None:
    """Without kube-scheduler, so it takes a tenth of a second per cluster. `--random-clusters` and `--first-seed`
    select the clusters.
    """
    first, count = pytestconfig.getoption("--first-seed"), pytestconfig.getoption("--random-clusters")
    planned = 0
    unbindable = dict[int, list[str]]()
    for seed in range(first, first + count):
        cluster = generate_cluster(seed)
        plan = plan_cluster(cluster, served(cluster))
        planned += len(plan.targets)
        if plan.order.unbindable:
            unbindable[seed] = sorted(plan.order.unbindable)
    lost = sum(map(len, unbindable.values()))
    found = f"{count} clusters, {planned} planned pods, {lost} without a place when it is their turn: {unbindable}"
    print(found)
    assert lost <= MAX_UNBINDABLE_SHARE * planned, found


def test_pod_is_compared_with_its_planned_node() -> None:
    plan = two_pod_plan()
    pods = {"first": bound_pod("first", "new"), "second": bound_pod("second", "other")}
    found = compare_nodes(plan, pods)
    assert (found.planned, found.elsewhere, found.stuck) == (2, {"second": "other"}, ())


def test_stuck_pod_is_reported_with_the_message_of_kube_scheduler() -> None:
    pods = {"first": bound_pod("first", "new"), "second": stuck_pod("second", "0/1 nodes are available")}
    (stuck,) = compare_nodes(two_pod_plan(), pods).stuck
    assert (stuck.name, stuck.target, stuck.message) == ("second", "old", "0/1 nodes are available")


def test_pod_with_a_scheduling_gate_has_no_message_of_kube_scheduler() -> None:
    pod = stuck_pod("first", "Scheduling is blocked due to non-empty scheduling gates")
    pod["status"]["conditions"][0]["reason"] = "SchedulingGated"
    assert scheduler_message(pod) == ""


def test_description_contains_the_plan_if_a_pod_is_stuck() -> None:
    pods = {"first": stuck_pod("first", "no room"), "second": bound_pod("second", "other")}
    assert compare_nodes(two_pod_plan(), pods).describe().splitlines() == [
        "seed 0: 1 of 2 planned pods are not bound",
        "  first, planned on new: no order found; no room",
        "  second, planned on old, is bound to other",
        "  plan: first on new, second on old",
    ]


def test_deleted_pod_is_reported() -> None:
    found = compare_nodes(two_pod_plan(), {"first": bound_pod("first", "new")})
    assert [one.message for one in found.stuck] == ["the pod is gone"]


@pytest.mark.parametrize(
    ("node", "daemon_pods", "is_stuck"),
    [("new", {("1", "new")}, True), ("new", {("1", "old")}, False), ("old", {("1", "old")}, False)],
    ids=["new node", "not bindable", "existing node"],
)
def test_bindable_daemonset_pod_must_fit_on_a_new_node(
    node: str, daemon_pods: set[tuple[str, str]], is_stuck: bool
) -> None:
    pods = {name: bound_pod(name, "new") for name in ("first", "second")}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    pods["agent"] = stuck_pod("agent", "Insufficient cpu")
    pods["agent"]["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "uid": "1"}]
    pods["agent"]["spec"] |= {"affinity": affinity}
    plan = replace(two_pod_plan(), daemon_pods=frozenset(daemon_pods))
    assert [one.name for one in compare_nodes(plan, pods).stuck] == ["agent"] * is_stuck


def two_pod_plan() -> ClusterPlan:
    new = {"status": {"allocatable": {"cpu": "2"}}}
    targets = {"first": "new", "second": "old"}
    order = BindingOrder(tuple(targets), frozenset({"first"}))
    return ClusterPlan(generate_cluster(0), {"new": new}, targets, order, frozenset({"rejected"}))


def bound_pod(name: str, node: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {}}


def stuck_pod(name: str, message: str) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {"conditions": [{"type": "PodScheduled", "message": message}]},
    }
