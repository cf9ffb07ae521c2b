"""Existing Nodes and NodeClaims take pods first: their capacity, and when they count."""

from datetime import timedelta

import pytest

from tenure.apis.labels import INSTANCE_TYPE, NODEPOOL, ZONE
from tenure.model.facts import NodeFact
from tenure.scheduling.cluster_state import Change
from tenure.scheduling.snapshot import Fact
from tests.unit.scheduling.builders import (
    COMMON,
    GIB,
    NOW,
    Cluster,
    change,
    daemonset,
    expressions,
    launched_nodeclaim,
    node,
    nodeclaim,
    pod,
    pods,
    pool,
    reasons,
    taint,
    toleration,
)

NOT_READY = taint("node.kubernetes.io/not-ready")
UNREACHABLE = taint("node.kubernetes.io/unreachable", effect="NoExecute")


def not_ready_for(seconds: float) -> NodeFact:
    return node("n", ready=False, ready_changed=NOW - timedelta(seconds=seconds), taints=(NOT_READY, UNREACHABLE))


def test_bound_pods_use_capacity_and_finished_pods_release_it() -> None:
    cluster = Cluster(pool(), node("n", cpu=4), pod("busy", cpu=3, node="n"), pod("p", cpu=2))
    assert cluster.plan().claims
    cluster.add(pod("busy", cpu=3, node="n", phase="Succeeded"))
    assert cluster.plan().nominations == {"p": "n"}


def test_deleted_pod_releases_its_capacity() -> None:
    cluster = Cluster(pool(), node("n", cpu=4), pod("busy", cpu=3, node="n"), pod("p", cpu=2))
    cluster.state.apply([Change(kind="pod", key="busy", fact=None)])
    assert cluster.plan().nominations == {"p": "n"}


@pytest.mark.parametrize(
    "changed",
    [
        pod("busy", cpu=3, node="n"),
        node("n", cpu=1),
        node("n", cpu=4, taints=(taint("new"),)),
        daemonset("agent", pod("template", cpu=3, daemonset=True)),
    ],
    ids=["pod", "capacity", "taint", "daemonset"],
)
def test_change_after_a_plan_counts_in_the_next_one(changed: Fact) -> None:
    cluster = Cluster(pool(), node("n", cpu=4), node("other", cpu=1), pod("p", cpu=2))
    assert cluster.plan().nominations == {"p": "n"}
    cluster.add(changed)
    assert not cluster.plan().nominations
    assert cluster.plan() == Cluster(pool(), node("n", cpu=4), node("other", cpu=1), pod("p", cpu=2), changed).plan()


def test_pods_beyond_the_existing_capacity_get_a_new_node() -> None:
    plan = Cluster(pool(), node("n", cpu=3), *pods(5)).plan()
    assert len(plan.nominations) == 3
    assert [len(one.pods) for one in plan.claims] == [2]


def test_missing_daemonset_pods_are_reserved_and_running_ones_count_once() -> None:
    agent = daemonset("agent", pod("template", cpu=2, daemonset=True))
    cluster = Cluster(pool(), node("n", cpu=4), agent, pod("p", cpu=3))
    assert cluster.plan().claims
    cluster = Cluster(pool(), node("n", cpu=4), agent, pod("p", cpu=2))
    assert cluster.plan().nominations == {"p": "n"}
    cluster.add(pod("running", cpu=2, node="n", daemonset=True, owner_uid="ds-agent"))
    assert cluster.plan().nominations == {"p": "n"}


def test_node_must_have_every_label_that_a_pod_requires() -> None:
    cluster = Cluster(node("n"), pod("p", selector={"karpenter.k8s.aws/instance-family": "m"}))
    assert not cluster.plan().nominations
    assert Cluster(node("n"), pod("p", selector={ZONE: "a"})).plan().nominations
    assert Cluster(node("n"), pod("p", selector={"kubernetes.io/hostname": "n"})).plan().nominations
    assert not Cluster(node("n"), pod("p", terms=(expressions("kubernetes.io/hostname NotIn n"),))).plan().nominations


def test_untolerated_taint_excludes_a_node() -> None:
    cluster = Cluster(pool(), node("n", taints=(taint("karpenter.sh/disrupted"),)), pod("p"))
    assert not cluster.plan().nominations
    assert Cluster(node("n", taints=(taint("t"),)), pod("p", tolerations=(toleration("t"),))).plan().nominations


def test_initialized_nodes_are_filled_first_by_name() -> None:
    young = node("a", provider_id="aws:///a/a")
    starting = nodeclaim("starting", on=young, initialized=False)
    cluster = Cluster(pool(), young, starting, node("c"), node("b"), *[pod(f"p{n}", cpu=6) for n in range(3)])
    assert list(cluster.plan().nominations.values()) == ["b", "c", "a"]


def test_pods_wait_for_a_rebooting_node_without_a_time_limit() -> None:
    """Before and after the request to EC2, when the node is not initialized any more."""
    taints = (NOT_READY, taint("karpenter.sh/rebooting"))
    rebooting = node("n", ready=False, ready_changed=NOW - timedelta(minutes=19), taints=taints)
    for initialized in (True, False):
        claim = nodeclaim("c", on=rebooting, initialized=initialized, rebooting=True)
        assert Cluster(pool(), rebooting, claim, pod("p")).plan().nominations == {"p": "n"}
    assert Cluster(pool(), rebooting, nodeclaim("c", on=rebooting), pod("p")).plan().claims


def test_grace_period_of_a_never_ready_node_counts_from_its_creation() -> None:
    fresh = node("n", ready=False, ready_changed=None, created=NOW - timedelta(minutes=1))
    assert Cluster(fresh, pod("p")).plan().nominations
    old = node("n", ready=False, ready_changed=None, created=NOW - timedelta(hours=1))
    assert not Cluster(old, pod("p")).plan().nominations


def test_unreported_resources_of_a_starting_node_come_from_its_nodeclaim() -> None:
    gpu = {"cpu": 8000, "memory": 16 * GIB, "pods": 58, "nvidia.com/gpu": 1}
    starting = node("n", allocatable={"cpu": 7900, "memory": 15 * GIB, "pods": 58, "nvidia.com/gpu": 0})
    wanting = pod("p", cpu=1, extra={"nvidia.com/gpu": 1})
    cluster = Cluster(starting, nodeclaim("c", on=starting, initialized=False, allocatable=gpu), wanting)
    assert cluster.plan().nominations == {"p": "n"}
    cluster.add(nodeclaim("c", on=starting, allocatable=gpu))
    assert not cluster.plan().nominations


def test_labels_and_taints_before_registration_come_from_the_nodeclaim() -> None:
    bare = node("n", labels={}, taints=(taint("karpenter.sh/unregistered", effect="NoExecute"), NOT_READY))
    joining = nodeclaim("c", on=bare, registered=False, initialized=False, labels={NODEPOOL: "default", ZONE: "b"})
    assert Cluster(bare, joining, pod("p", selector={ZONE: "b"})).plan().nominations == {"p": "n"}


@pytest.mark.parametrize("ready", [False, True])
def test_node_created_again_by_its_kubelet_keeps_its_pods(ready: bool) -> None:
    unregistered = (taint("karpenter.sh/unregistered", effect="NoExecute"),)
    gaps = ("label karpenter.sh/registered",)
    found = node(
        "n", labels={}, taints=unregistered, registration_gaps=gaps, ready=ready, created=NOW, ready_changed=NOW
    )
    initialized = nodeclaim("c", on=found, labels={NODEPOOL: "default", ZONE: "b"})
    assert Cluster(found, initialized, pod("p", selector={ZONE: "b"})).plan().nominations == {"p": "n"}


def test_launched_nodeclaim_counts_with_the_capacity_of_its_instance() -> None:
    [planned] = Cluster(pool(), pod("p")).plan().claims
    running = launched_nodeclaim("c", planned, COMMON[2])
    plan = Cluster(pool(), running, *pods(7)).plan()
    assert set(plan.nominations.values()) == {"c"}
    assert not plan.claims


@pytest.mark.parametrize(("seconds", "counts"), [(99, True), (100, False)])
def test_node_that_disappears_before_initialization_counts_within_the_grace(seconds: float, counts: bool) -> None:
    planned = Cluster(pool(), pod("p")).plan().claims[0]
    missing_since = NOW - timedelta(seconds=seconds)
    claim = launched_nodeclaim("c", planned, COMMON[2], registered=True, node_missing_since=missing_since)
    plan = Cluster(pool(), claim, pod("p")).plan(not_ready_grace=timedelta(seconds=100))
    assert plan.nominations == ({"p": "c"} if counts else {}) and bool(plan.claims) is not counts


def test_launched_nodeclaim_takes_pods_by_the_labels_of_its_instance() -> None:
    [planned] = Cluster(pool(), pod("p")).plan().claims
    running = launched_nodeclaim("c", planned, COMMON[2], zone="b")
    assert Cluster(running, pod("q", selector={ZONE: "b", INSTANCE_TYPE: "m.2xlarge"})).plan().nominations == {"q": "c"}
    assert not Cluster(running, pod("q", selector={ZONE: "a"})).plan().nominations


def test_node_without_provider_id_counts_once_with_its_nodeclaim() -> None:
    cluster = Cluster(pool(), *pods(7))
    [(name, planned)] = cluster.commit(cluster.plan()).items()
    cluster.add(launched_nodeclaim(name, planned, COMMON[2]))
    cluster.add(node("n", provider_id="", labels={NODEPOOL: "default", ZONE: "a"}), *pods(4))
    plan = cluster.plan()
    assert set(plan.nominations.values()) == {name}
    assert Cluster(node("n", provider_id=""), pod("p")).plan().nominations, (
        "a node without NodeClaim is nominated by its own name"
    )


def test_undersized_instance_keeps_only_fitting_pods() -> None:
    cluster = Cluster(pool(), pod("p", memory=7.4))
    [(name, planned)] = cluster.commit(cluster.plan()).items()
    small = launched_nodeclaim(name, planned, COMMON[0], allocatable={"cpu": 1900, "memory": 7 * GIB, "pods": 58})
    cluster.add(small)
    assert [one.pods for one in cluster.plan(after=5).claims] == [("p",)]


def test_unlaunched_nodeclaim_has_the_capacity_of_its_requests() -> None:
    waiting = nodeclaim("c", requests={"cpu": 3000, "memory": 8 * GIB, "pods": 3})
    plan = Cluster(pool(), waiting, *pods(5)).plan()
    assert list(plan.nominations.values()) == ["c"] * 3
    assert [len(one.pods) for one in plan.claims] == [2]


def test_unlaunched_nodeclaim_takes_pods_compatible_with_every_outcome() -> None:
    requests = {"cpu": 3000, "memory": 8 * GIB, "pods": 3}
    waiting = nodeclaim("c", requests=requests, requirements=expressions(f"{ZONE} In a b"))
    assert not Cluster(waiting, pod("p", selector={ZONE: "a"})).plan().nominations
    assert Cluster(waiting, pod("p", terms=(expressions(f"{ZONE} In a b c"),))).plan().nominations
    assert Cluster(waiting, pod("p")).plan().nominations
    assert not Cluster(waiting.model_copy(update={"taints": (taint("t"),)}), pod("p")).plan().nominations


def test_unlaunched_nodeclaim_reserves_its_daemonset_requests() -> None:
    agent = daemonset("agent", pod("template", cpu=2, daemonset=True))
    cluster = Cluster(pool(), agent, *pods(3))
    cluster.commit(cluster.plan())
    cluster.add(pod("late", cpu=4))
    assert [one.pods for one in cluster.plan(after=1).claims] == [("late",)]


@pytest.mark.parametrize("terminating_object", ["node", "claim", "instance"])
def test_deleting_node_is_not_used_and_its_pods_are_rescheduled(terminating_object: str) -> None:
    terminating = node("n", deleting=terminating_object == "node")
    owner = nodeclaim(
        "c",
        on=terminating,
        deleting=terminating_object == "claim",
        instance_terminating=terminating_object == "instance",
    )
    agent_pod = pod("agent", node="n", daemonset=True)
    plan = Cluster(pool(), terminating, owner, pod("mover", node="n"), agent_pod, pod("p")).plan()
    assert not plan.nominations
    assert sorted(uid for one in plan.claims for uid in one.pods) == ["mover", "p"]


def test_pods_of_a_deleting_node_use_existing_capacity_first() -> None:
    terminating = node("n", deleting=True)
    assert Cluster(pool(), terminating, node("m"), pod("mover", node="n")).plan().nominations == {"mover": "m"}


def test_launched_nodeclaim_without_capacity_counts_with_its_requests() -> None:
    bare = nodeclaim("c", launched=True, requests={"cpu": 1000, "memory": GIB, "pods": 1})
    assert len(Cluster(bare, *pods(2)).plan().nominations) == 1


def test_missing_nodepool_is_the_reason() -> None:
    messages = reasons(Cluster(node("n", cpu=1), pod(cpu=4)).plan())
    assert messages == ["no existing node has room, and no NodePool is ready to launch one"]


def test_deleted_node_is_not_used() -> None:
    cluster = Cluster(pool(), node("n"), pod("p"))
    cluster.state.apply([Change(kind="node", key="n", fact=None)])
    assert cluster.plan().claims


def test_fact_of_another_kind_raises_type_error() -> None:
    with pytest.raises(TypeError, match="a node was announced and a PodFact given"):
        Cluster().state.apply([change(pod("p")).model_copy(update={"kind": "node"})])


@pytest.mark.parametrize(("grace", "is_nominated"), [(120, True), (60, False)])
def test_grace_period_of_the_nodepool_applies_to_its_nodes(grace: float, is_nominated: bool) -> None:
    pool_node = not_ready_for(100).model_copy(update={"labels": {**not_ready_for(100).labels, NODEPOOL: "long-grace"}})
    default_grace = timedelta(seconds=60 if is_nominated else 120)
    plan = Cluster(pool(), pool_node, pod("p")).plan(
        not_ready_grace=default_grace, pool_graces={"long-grace": timedelta(seconds=grace), "other": default_grace}
    )
    assert (plan.nominations == {"p": "n"}) is is_nominated
