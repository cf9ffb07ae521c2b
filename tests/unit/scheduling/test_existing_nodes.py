"""Nodes and claims that exist take pods first: what they have room for, when they count, and when not."""

from datetime import timedelta

import pytest

from tenure.apis.labels import INSTANCE_TYPE, NODEPOOL, ZONE
from tenure.model.facts import NodeFact
from tenure.scheduling.cluster_state import Change
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


def test_room_on_a_node_is_used_before_anything_is_bought() -> None:
    one = pod("p")
    plan = Cluster(pool(), node("n"), one).plan()
    assert plan.nominations == {"p": "n"}
    assert not plan.claims


def test_bound_pods_take_room_and_finished_ones_give_it_back() -> None:
    cluster = Cluster(pool(), node("n", cpu=4), pod("busy", cpu=3, node="n"), pod("p", cpu=2))
    assert cluster.plan().claims
    cluster.add(pod("busy", cpu=3, node="n", phase="Succeeded"))
    assert cluster.plan().nominations == {"p": "n"}


def test_a_deleted_pod_gives_its_room_back() -> None:
    cluster = Cluster(pool(), node("n", cpu=4), pod("busy", cpu=3, node="n"), pod("p", cpu=2))
    cluster.state.apply([Change(kind="pod", key="busy", fact=None)])
    assert cluster.plan().nominations == {"p": "n"}


def test_pods_beyond_the_room_are_bought_for() -> None:
    plan = Cluster(pool(), node("n", cpu=3), *pods(5)).plan()
    assert len(plan.nominations) == 3
    assert [len(one.pods) for one in plan.claims] == [2]


def test_daemonsets_still_to_come_are_kept_room_for_and_running_ones_are_not_counted_twice() -> None:
    agent = daemonset("agent", pod("template", cpu=2, daemonset=True))
    cluster = Cluster(pool(), node("n", cpu=4), agent, pod("p", cpu=3))
    assert cluster.plan().claims
    cluster = Cluster(pool(), node("n", cpu=4), agent, pod("p", cpu=2))
    assert cluster.plan().nominations == {"p": "n"}
    cluster.add(pod("running", cpu=2, node="n", daemonset=True, owner_uid="ds-agent"))
    assert cluster.plan().nominations == {"p": "n"}


def test_a_node_must_define_every_label_a_pod_asks_for() -> None:
    cluster = Cluster(node("n"), pod("p", selector={"karpenter.k8s.aws/instance-family": "m"}))
    assert not cluster.plan().nominations
    assert Cluster(node("n"), pod("p", selector={ZONE: "a"})).plan().nominations
    assert Cluster(node("n"), pod("p", selector={"kubernetes.io/hostname": "n"})).plan().nominations
    assert not Cluster(node("n"), pod("p", terms=(expressions("kubernetes.io/hostname NotIn n"),))).plan().nominations


def test_a_taint_keeps_pods_off_a_node() -> None:
    cluster = Cluster(pool(), node("n", taints=(taint("karpenter.sh/disrupted"),)), pod("p"))
    assert not cluster.plan().nominations
    assert Cluster(node("n", taints=(taint("t"),)), pod("p", tolerations=(toleration("t"),))).plan().nominations


def test_initialized_nodes_fill_first_and_then_by_name() -> None:
    young = node("a", provider_id="aws:///a/a")
    starting = nodeclaim("starting", on=young, initialized=False)
    cluster = Cluster(pool(), young, starting, node("c"), node("b"), *[pod(f"p{n}", cpu=6) for n in range(3)])
    assert list(cluster.plan().nominations.values()) == ["b", "c", "a"]


def test_a_node_that_flaps_not_ready_buys_no_second_node_within_the_grace() -> None:
    flapping = not_ready_for(50)
    cluster = Cluster(pool(), flapping, nodeclaim("c", on=flapping), pod("p"))
    plan = cluster.plan()
    assert plan.nominations == {"p": "n"}
    assert not plan.claims


def test_after_the_grace_it_is_no_home_any_more() -> None:
    not_ready = not_ready_for(50)
    cluster = Cluster(pool(), not_ready, nodeclaim("c", on=not_ready), pod("p"))
    plan = cluster.plan(not_ready_grace=timedelta(seconds=50))
    assert not plan.nominations
    assert [one.pods for one in plan.claims] == [("p",)]


def test_the_grace_forgives_no_other_taint() -> None:
    flapping = not_ready_for(10).model_copy(update={"taints": (NOT_READY, taint("team"))})
    assert Cluster(pool(), flapping, pod("p")).plan().claims


def test_a_node_that_was_never_ready_counts_by_its_age() -> None:
    fresh = node("n", ready=False, ready_changed=None, created=NOW - timedelta(minutes=1))
    assert Cluster(fresh, pod("p")).plan().nominations
    old = node("n", ready=False, ready_changed=None, created=NOW - timedelta(hours=1))
    assert not Cluster(old, pod("p")).plan().nominations


def test_startup_and_ephemeral_taints_are_looked_through_until_the_node_is_initialized() -> None:
    agent = taint("node.cilium.io/agent-not-ready", "true", "NoExecute")
    starting = not_ready_for(3000).model_copy(update={"taints": (NOT_READY, agent)})
    bought = nodeclaim("c", on=starting, initialized=False, startup_taints=(agent,))
    assert Cluster(pool(), starting, bought, pod("p")).plan().nominations == {"p": "n"}
    ready = node("n", taints=(agent,))
    assert Cluster(pool(), ready, nodeclaim("c", on=ready, startup_taints=(agent,)), pod("p")).plan().claims


def test_what_a_starting_node_does_not_report_yet_is_taken_from_its_claim() -> None:
    gpu = {"cpu": 8000, "memory": 16 * GIB, "pods": 58, "nvidia.com/gpu": 1}
    starting = node("n", allocatable={"cpu": 7900, "memory": 15 * GIB, "pods": 58, "nvidia.com/gpu": 0})
    wanting = pod("p", cpu=1, extra={"nvidia.com/gpu": 1})
    cluster = Cluster(starting, nodeclaim("c", on=starting, initialized=False, allocatable=gpu), wanting)
    assert cluster.plan().nominations == {"p": "n"}
    cluster.add(nodeclaim("c", on=starting, allocatable=gpu))
    assert not cluster.plan().nominations


def test_before_registration_the_claim_says_what_labels_and_taints_will_be() -> None:
    bare = node("n", labels={}, taints=(taint("karpenter.sh/unregistered", effect="NoExecute"), NOT_READY))
    joining = nodeclaim("c", on=bare, registered=False, initialized=False, labels={NODEPOOL: "default", ZONE: "b"})
    assert Cluster(bare, joining, pod("p", selector={ZONE: "b"})).plan().nominations == {"p": "n"}


def test_a_launched_claim_counts_with_what_its_instance_has() -> None:
    [planned] = Cluster(pool(), pod("p")).plan().claims
    running = launched_nodeclaim("c", planned, COMMON[2])
    plan = Cluster(pool(), running, *pods(7)).plan()
    assert set(plan.nominations.values()) == {"c"}
    assert not plan.claims


def test_a_launched_claim_takes_pods_by_the_labels_its_instance_has() -> None:
    [planned] = Cluster(pool(), pod("p")).plan().claims
    running = launched_nodeclaim("c", planned, COMMON[2], zone="b")
    assert Cluster(running, pod("q", selector={ZONE: "b", INSTANCE_TYPE: "m.2xlarge"})).plan().nominations == {"q": "c"}
    assert not Cluster(running, pod("q", selector={ZONE: "a"})).plan().nominations


def test_a_node_that_does_not_say_yet_whose_it_is_counts_once_with_its_claim() -> None:
    cluster = Cluster(pool(), *pods(7))
    [(name, planned)] = cluster.commit(cluster.plan()).items()
    cluster.add(launched_nodeclaim(name, planned, COMMON[2]))
    cluster.add(node("n", provider_id="", labels={NODEPOOL: "default", ZONE: "a"}), *pods(4))
    plan = cluster.plan()
    assert set(plan.nominations.values()) == {name}
    assert Cluster(node("n", provider_id=""), pod("p")).plan().nominations, "one that is nobody's has its own name"


def test_an_instance_that_turns_out_smaller_than_planned_keeps_no_pod_that_does_not_fit() -> None:
    cluster = Cluster(pool(), pod("p", memory=7.4))
    [(name, planned)] = cluster.commit(cluster.plan()).items()
    small = launched_nodeclaim(name, planned, COMMON[0], allocatable={"cpu": 1900, "memory": 7 * GIB, "pods": 58})
    cluster.add(small)
    assert [one.pods for one in cluster.plan(after=5).claims] == [("p",)]


def test_an_unlaunched_claim_offers_exactly_what_it_asks_for() -> None:
    waiting = nodeclaim("c", requests={"cpu": 3000, "memory": 8 * GIB, "pods": 3})
    plan = Cluster(pool(), waiting, *pods(5)).plan()
    assert list(plan.nominations.values()) == ["c"] * 3
    assert [len(one.pods) for one in plan.claims] == [2]


def test_an_unlaunched_claim_takes_only_pods_that_any_outcome_satisfies() -> None:
    requests = {"cpu": 3000, "memory": 8 * GIB, "pods": 3}
    waiting = nodeclaim("c", requests=requests, requirements=expressions(f"{ZONE} In a b"))
    assert not Cluster(waiting, pod("p", selector={ZONE: "a"})).plan().nominations
    assert Cluster(waiting, pod("p", terms=(expressions(f"{ZONE} In a b c"),))).plan().nominations
    assert Cluster(waiting, pod("p")).plan().nominations
    assert not Cluster(waiting.model_copy(update={"taints": (taint("t"),)}), pod("p")).plan().nominations


def test_an_unlaunched_claim_keeps_the_part_of_its_daemonsets() -> None:
    agent = daemonset("agent", pod("template", cpu=2, daemonset=True))
    cluster = Cluster(pool(), agent, *pods(3))
    cluster.commit(cluster.plan())
    cluster.add(pod("late"))
    assert [one.pods for one in cluster.plan(after=1).claims] == [("late",)]


@pytest.mark.parametrize("terminating_object", ["node", "claim", "instance"])
def test_what_is_being_removed_is_no_home_and_its_pods_move(terminating_object: str) -> None:
    terminating = node("n", deleting=terminating_object == "node")
    owner = nodeclaim(
        "c",
        on=terminating,
        deleting=terminating_object == "claim",
        instance_terminating=terminating_object == "instance",
    )
    stays = pod("agent", node="n", daemonset=True)
    plan = Cluster(pool(), terminating, owner, pod("mover", node="n"), stays, pod("p")).plan()
    assert not plan.nominations
    assert sorted(uid for one in plan.claims for uid in one.pods) == ["mover", "p"]


def test_pods_of_a_node_that_goes_take_room_elsewhere_first() -> None:
    terminating = node("n", deleting=True)
    assert Cluster(pool(), terminating, node("m"), pod("mover", node="n")).plan().nominations == {"mover": "m"}


def test_a_launched_claim_whose_amounts_are_unknown_offers_what_was_asked_for() -> None:
    bare = nodeclaim("c", launched=True, requests={"cpu": 1000, "memory": GIB, "pods": 1})
    assert len(Cluster(bare, *pods(2)).plan().nominations) == 1


def test_with_no_pool_at_all_the_reason_says_so() -> None:
    messages = reasons(Cluster(node("n", cpu=1), pod(cpu=4)).plan())
    assert messages == ["no existing node has room, and no NodePool is ready to make one"]


def test_a_node_that_is_gone_is_forgotten() -> None:
    cluster = Cluster(pool(), node("n"), pod("p"))
    cluster.state.apply([Change(kind="node", key="n", fact=None)])
    assert cluster.plan().claims


def test_a_fact_of_another_kind_than_announced_is_refused() -> None:
    with pytest.raises(TypeError, match="a node was announced and a PodFact given"):
        Cluster().state.apply([change(pod("p")).model_copy(update={"kind": "node"})])


@pytest.mark.parametrize(("grace", "is_nominated"), [(120, True), (60, False)])
def test_a_pool_s_own_grace_counts_for_its_nodes(grace: float, is_nominated: bool) -> None:
    of_pool = not_ready_for(100).model_copy(update={"labels": {**not_ready_for(100).labels, NODEPOOL: "patient"}})
    default_grace = timedelta(seconds=60 if is_nominated else 120)
    plan = Cluster(pool(), of_pool, pod("p")).plan(
        not_ready_grace=default_grace, pool_graces={"patient": timedelta(seconds=grace), "other": default_grace}
    )
    assert (plan.nominations == {"p": "n"}) is is_nominated
