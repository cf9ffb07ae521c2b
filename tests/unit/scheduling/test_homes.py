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
    World,
    change,
    claim,
    daemonset,
    expressions,
    launched,
    node,
    pod,
    pods,
    pool,
    reasons,
    taint,
    toleration,
)

NOT_READY = taint("node.kubernetes.io/not-ready")
UNREACHABLE = taint("node.kubernetes.io/unreachable", effect="NoExecute")


def gone_for(seconds: float) -> NodeFact:
    return node("n", ready=False, ready_changed=NOW - timedelta(seconds=seconds), taints=(NOT_READY, UNREACHABLE))


def test_room_on_a_node_is_used_before_anything_is_bought() -> None:
    one = pod("p")
    plan = World(pool(), node("n"), one).plan()
    assert plan.nominations == {"p": "n"}
    assert not plan.claims


def test_bound_pods_take_room_and_finished_ones_give_it_back() -> None:
    world = World(pool(), node("n", cpu=4), pod("busy", cpu=3, node="n"), pod("p", cpu=2))
    assert world.plan().claims
    world.add(pod("busy", cpu=3, node="n", phase="Succeeded"))
    assert world.plan().nominations == {"p": "n"}


def test_a_deleted_pod_gives_its_room_back() -> None:
    world = World(pool(), node("n", cpu=4), pod("busy", cpu=3, node="n"), pod("p", cpu=2))
    world.state.apply([Change(kind="pod", key="busy", fact=None)])
    assert world.plan().nominations == {"p": "n"}


def test_pods_beyond_the_room_are_bought_for() -> None:
    plan = World(pool(), node("n", cpu=3), *pods(5)).plan()
    assert len(plan.nominations) == 3
    assert [len(one.pods) for one in plan.claims] == [2]


def test_daemonsets_still_to_come_are_kept_room_for_and_running_ones_are_not_counted_twice() -> None:
    agent = daemonset("agent", pod("template", cpu=2, daemonset=True))
    world = World(pool(), node("n", cpu=4), agent, pod("p", cpu=3))
    assert world.plan().claims
    world = World(pool(), node("n", cpu=4), agent, pod("p", cpu=2))
    assert world.plan().nominations == {"p": "n"}
    world.add(pod("running", cpu=2, node="n", daemonset=True, owner_uid="ds-agent"))
    assert world.plan().nominations == {"p": "n"}


def test_a_node_must_define_every_label_a_pod_asks_for() -> None:
    world = World(node("n"), pod("p", selector={"karpenter.k8s.aws/instance-family": "m"}))
    assert not world.plan().nominations
    assert World(node("n"), pod("p", selector={ZONE: "a"})).plan().nominations
    assert World(node("n"), pod("p", selector={"kubernetes.io/hostname": "n"})).plan().nominations
    assert not World(node("n"), pod("p", terms=(expressions("kubernetes.io/hostname NotIn n"),))).plan().nominations


def test_a_taint_keeps_pods_off_a_node() -> None:
    world = World(pool(), node("n", taints=(taint("karpenter.sh/disrupted"),)), pod("p"))
    assert not world.plan().nominations
    assert World(node("n", taints=(taint("t"),)), pod("p", tolerations=(toleration("t"),))).plan().nominations


def test_initialized_nodes_fill_first_and_then_by_name() -> None:
    young = node("a", provider_id="aws:///a/a")
    starting = claim("starting", on=young, initialized=False)
    world = World(pool(), young, starting, node("c"), node("b"), *[pod(f"p{n}", cpu=6) for n in range(3)])
    assert list(world.plan().nominations.values()) == ["b", "c", "a"]


def test_a_node_that_flaps_not_ready_buys_no_second_node_within_the_grace() -> None:
    flapping = gone_for(50)
    world = World(pool(), flapping, claim("c", on=flapping), pod("p"))
    plan = world.plan()
    assert plan.nominations == {"p": "n"}
    assert not plan.claims


def test_after_the_grace_it_is_no_home_any_more() -> None:
    gone = gone_for(50)
    world = World(pool(), gone, claim("c", on=gone), pod("p"))
    plan = world.plan(not_ready_grace=timedelta(seconds=50))
    assert not plan.nominations
    assert [one.pods for one in plan.claims] == [("p",)]


def test_the_grace_forgives_no_other_taint() -> None:
    flapping = gone_for(10).model_copy(update={"taints": (NOT_READY, taint("team"))})
    assert World(pool(), flapping, pod("p")).plan().claims


def test_a_node_that_was_never_ready_counts_by_its_age() -> None:
    fresh = node("n", ready=False, ready_changed=None, created=NOW - timedelta(minutes=1))
    assert World(fresh, pod("p")).plan().nominations
    old = node("n", ready=False, ready_changed=None, created=NOW - timedelta(hours=1))
    assert not World(old, pod("p")).plan().nominations


def test_startup_and_ephemeral_taints_are_looked_through_until_the_node_is_initialized() -> None:
    agent = taint("node.cilium.io/agent-not-ready", "true", "NoExecute")
    starting = gone_for(3000).model_copy(update={"taints": (NOT_READY, agent)})
    bought = claim("c", on=starting, initialized=False, startup_taints=(agent,))
    assert World(pool(), starting, bought, pod("p")).plan().nominations == {"p": "n"}
    ready = node("n", taints=(agent,))
    assert World(pool(), ready, claim("c", on=ready, startup_taints=(agent,)), pod("p")).plan().claims


def test_what_a_starting_node_does_not_report_yet_is_taken_from_its_claim() -> None:
    gpu = {"cpu": 8000, "memory": 16 * GIB, "pods": 58, "nvidia.com/gpu": 1}
    starting = node("n", allocatable={"cpu": 7900, "memory": 15 * GIB, "pods": 58, "nvidia.com/gpu": 0})
    wanting = pod("p", cpu=1, extra={"nvidia.com/gpu": 1})
    world = World(starting, claim("c", on=starting, initialized=False, allocatable=gpu), wanting)
    assert world.plan().nominations == {"p": "n"}
    world.add(claim("c", on=starting, allocatable=gpu))
    assert not world.plan().nominations


def test_before_registration_the_claim_says_what_labels_and_taints_will_be() -> None:
    bare = node("n", labels={}, taints=(taint("karpenter.sh/unregistered", effect="NoExecute"), NOT_READY))
    joining = claim("c", on=bare, registered=False, initialized=False, labels={NODEPOOL: "default", ZONE: "b"})
    assert World(bare, joining, pod("p", selector={ZONE: "b"})).plan().nominations == {"p": "n"}


def test_a_launched_claim_counts_with_what_its_instance_has() -> None:
    [planned] = World(pool(), pod("p")).plan().claims
    running = launched("c", planned, COMMON[2])
    plan = World(pool(), running, *pods(7)).plan()
    assert set(plan.nominations.values()) == {"c"}
    assert not plan.claims


def test_a_launched_claim_takes_pods_by_the_labels_its_instance_has() -> None:
    [planned] = World(pool(), pod("p")).plan().claims
    running = launched("c", planned, COMMON[2], zone="b")
    assert World(running, pod("q", selector={ZONE: "b", INSTANCE_TYPE: "m.2xlarge"})).plan().nominations == {"q": "c"}
    assert not World(running, pod("q", selector={ZONE: "a"})).plan().nominations


def test_a_node_that_does_not_say_yet_whose_it_is_counts_once_with_its_claim() -> None:
    world = World(pool(), *pods(7))
    [(name, planned)] = world.commit(world.plan()).items()
    world.add(launched(name, planned, COMMON[2]))
    world.add(node("n", provider_id="", labels={NODEPOOL: "default", ZONE: "a"}), *pods(4))
    plan = world.plan()
    assert set(plan.nominations.values()) == {name}
    assert World(node("n", provider_id=""), pod("p")).plan().nominations, "one that is nobody's has its own name"


def test_an_instance_that_turns_out_smaller_than_planned_keeps_no_pod_that_does_not_fit() -> None:
    world = World(pool(), pod("p", memory=7.4))
    [(name, planned)] = world.commit(world.plan()).items()
    small = launched(name, planned, COMMON[0], allocatable={"cpu": 1900, "memory": 7 * GIB, "pods": 58})
    world.add(small)
    assert [one.pods for one in world.plan(after=5).claims] == [("p",)]


def test_an_unlaunched_claim_offers_exactly_what_it_asks_for() -> None:
    waiting = claim("c", requests={"cpu": 3000, "memory": 8 * GIB, "pods": 3})
    plan = World(pool(), waiting, *pods(5)).plan()
    assert list(plan.nominations.values()) == ["c"] * 3
    assert [len(one.pods) for one in plan.claims] == [2]


def test_an_unlaunched_claim_takes_only_pods_that_any_outcome_satisfies() -> None:
    room = {"cpu": 3000, "memory": 8 * GIB, "pods": 3}
    waiting = claim("c", requests=room, requirements=expressions(f"{ZONE} In a b"))
    assert not World(waiting, pod("p", selector={ZONE: "a"})).plan().nominations
    assert World(waiting, pod("p", terms=(expressions(f"{ZONE} In a b c"),))).plan().nominations
    assert World(waiting, pod("p")).plan().nominations
    assert not World(waiting.model_copy(update={"taints": (taint("t"),)}), pod("p")).plan().nominations


def test_an_unlaunched_claim_keeps_the_part_of_its_daemonsets() -> None:
    agent = daemonset("agent", pod("template", cpu=2, daemonset=True))
    world = World(pool(), agent, *pods(3))
    world.commit(world.plan())
    world.add(pod("late"))
    assert [one.pods for one in world.plan(after=1).claims] == [("late",)]


@pytest.mark.parametrize("going", ["node", "claim", "instance"])
def test_what_is_being_removed_is_no_home_and_its_pods_move(going: str) -> None:
    leaving = node("n", deleting=going == "node")
    owner = claim("c", on=leaving, deleting=going == "claim", instance_terminating=going == "instance")
    stays = pod("agent", node="n", daemonset=True)
    plan = World(pool(), leaving, owner, pod("mover", node="n"), stays, pod("p")).plan()
    assert not plan.nominations
    assert sorted(uid for one in plan.claims for uid in one.pods) == ["mover", "p"]


def test_pods_of_a_node_that_goes_take_room_elsewhere_first() -> None:
    leaving = node("n", deleting=True)
    assert World(pool(), leaving, node("m"), pod("mover", node="n")).plan().nominations == {"mover": "m"}


def test_a_launched_claim_whose_amounts_are_unknown_offers_what_was_asked_for() -> None:
    bare = claim("c", launched=True, requests={"cpu": 1000, "memory": GIB, "pods": 1})
    assert len(World(bare, *pods(2)).plan().nominations) == 1


def test_with_no_pool_at_all_the_reason_says_so() -> None:
    said = reasons(World(node("n", cpu=1), pod(cpu=4)).plan())
    assert said == ["no existing node has room, and no NodePool is ready to make one"]


def test_a_node_that_is_gone_is_forgotten() -> None:
    world = World(pool(), node("n"), pod("p"))
    world.state.apply([Change(kind="node", key="n", fact=None)])
    assert world.plan().claims


def test_a_fact_of_another_kind_than_announced_is_refused() -> None:
    with pytest.raises(TypeError, match="a node was announced and a PodFact given"):
        World().state.apply([change(pod("p")).model_copy(update={"kind": "node"})])


@pytest.mark.parametrize(("grace", "is_home"), [(120, True), (60, False)])
def test_a_pool_s_own_grace_counts_for_its_nodes(grace: float, is_home: bool) -> None:
    of_pool = gone_for(100).model_copy(update={"labels": {**gone_for(100).labels, NODEPOOL: "patient"}})
    usual = timedelta(seconds=60 if is_home else 120)
    plan = World(pool(), of_pool, pod("p")).plan(
        not_ready_grace=usual, pool_graces={"patient": timedelta(seconds=grace), "other": usual}
    )
    assert (plan.nominations == {"p": "n"}) is is_home
