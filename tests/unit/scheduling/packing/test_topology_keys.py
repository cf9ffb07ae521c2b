"""Nodes without a topology key, and pods with several topology keys, as kube-scheduler treats them."""

from collections import Counter

import pytest

from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from tenure.kube.facts.pods import read_pod
from tenure.model.facts import AffinityTerm, NodeFact, PodFact
from tenure.scheduling.packing.pod_requirements import build_pod_shape
from tenure.scheduling.packing.topology_rules import TopologyGroups
from tests.support.controller.builders import pod as pod_json
from tests.unit.scheduling.builders import daemonset, expressions, instance_type, node, pod, pool, reasons, values_of
from tests.unit.scheduling.packing.test_topology import (
    APP,
    build_cluster,
    by_zone,
    sizes,
    spread,
    term,
    web,
)

RACK = "rack"
RACKS = pool("racks", f"{RACK} In r1 r2")
EVERY_POD = AffinityTerm(key=RACK, selector=(), namespace_selector=())
BOTH_CAPACITY_TYPES = (instance_type("m.2xlarge", cpu=8, memory=32, capacity_types=("spot", "on-demand")),)


def racked(name: str, rack: str, **more: object) -> NodeFact:
    return node(name, labels={ZONE: "a", CAPACITY_TYPE: "on-demand", RACK: rack}, **more)  # type: ignore[arg-type]


# --- anti-affinity with a key that nodes lack ---


@pytest.mark.parametrize("state", ["running", "pending", "daemonset"])
def test_anti_affinity_with_an_unknown_key_restricts_no_other_pod(state: str) -> None:
    excluding = {"namespace": "tenant", "cpu": 0.1, "anti_affinity": (EVERY_POD,)}
    facts = {
        "running": pod("excluding", node="n", **excluding),  # type: ignore[arg-type]
        "pending": pod("excluding", **excluding),  # type: ignore[arg-type]
        "daemonset": daemonset("excluding", pod("excluding", **excluding)),  # type: ignore[arg-type]
    }
    plan = build_cluster(pool(), node("n", cpu=2), facts[state], pod("small"), pod("large", cpu=4)).plan()
    assert not plan.unschedulable and plan.nominations["small"] == "n"
    assert [one.pods for one in plan.claims] == [("large",)]
    assert all(one.key != RACK for one in plan.claims[0].requirements), "no requirement for the key of another pod"


def test_pods_with_anti_affinity_with_an_unknown_key_share_nodes() -> None:
    plan = build_cluster(pool(), *web(3, anti_affinity=term(RACK))).plan()
    assert sizes(plan) == [3] and not plan.unschedulable


def test_affinity_with_an_unknown_key_restricts_only_its_own_pod() -> None:
    plan = build_cluster(pool(), pod("follower", namespace="tenant", affinity=(EVERY_POD,)), pod("other")).plan()
    assert [one.pods for one in plan.claims] == [("other",)]
    assert reasons(plan) == ["no launchable node and no existing node has the label rack"]


def test_new_node_without_the_key_satisfies_anti_affinity_of_a_running_pod() -> None:
    excluding = pod("excluding", node="n", anti_affinity=(EVERY_POD,))
    plan = build_cluster(pool(), racked("n", "r1"), excluding, pod("p")).plan()
    assert [one.pods for one in plan.claims] == [("p",)] and not plan.nominations


def test_existing_node_without_the_key_satisfies_anti_affinity() -> None:
    excluding = pod("excluding", node="n1", anti_affinity=(EVERY_POD,))
    plan = build_cluster(RACKS, racked("n1", "r1"), node("n2"), excluding, pod("p")).plan()
    assert plan.nominations == {"p": "n2"}


def test_existing_node_with_the_key_is_used_before_new_nodes_without_it() -> None:
    plan = build_cluster(pool(), racked("n", "r1"), *web(2, anti_affinity=term(RACK))).plan()
    assert len(plan.nominations) == 1 and sizes(plan) == [1]


def test_one_pod_for_each_value_of_the_key_and_all_others_on_nodes_without_it() -> None:
    plan = build_cluster(RACKS, pool("open"), *web(6, anti_affinity=term(RACK))).plan()
    racks = Counter[str]()
    for one in plan.claims:
        racks[one.labels.get(RACK, "")] += len(one.pods)
    assert not plan.unschedulable and max(racks[name] for name in ("r1", "r2")) <= 1
    assert racks[""] == 6 - racks["r1"] - racks["r2"]


def test_pods_that_others_follow_prefer_a_node_with_the_key() -> None:
    """Otherwise no node could satisfy the affinity of the others."""
    follower = pod("follower", affinity=term(RACK))
    expensive = pool("racks", f"{RACK} In r1", "node.kubernetes.io/instance-type In m.2xlarge")
    plan = build_cluster(expensive, pool("open"), pod("leader", labels=APP), follower).plan()
    assert not plan.unschedulable
    assert {one.labels.get(RACK) for one in plan.claims} == {"r1"}


def test_pod_that_requires_the_key_is_not_planned_on_a_node_without_it() -> None:
    needs_rack = web(3, anti_affinity=term(RACK), terms=(expressions(f"{RACK} Exists"),))
    plan = build_cluster(RACKS, pool("open"), *needs_rack).plan()
    assert sorted(one.labels[RACK] for one in plan.claims) == ["r1", "r2"] and len(plan.unschedulable) == 1


def test_pod_with_not_in_does_not_give_the_label_to_a_node_without_it() -> None:
    """A NodePool that allows further values would give its node one of them."""
    open_pool = pool("open", f"{RACK} NotIn r3")
    plan = build_cluster(open_pool, *web(2, anti_affinity=term(RACK))).plan()
    assert not plan.unschedulable and all(RACK not in one.labels for one in plan.claims)


@pytest.mark.parametrize(("cpu", "launched"), [(3, 1), (99, 0)])
def test_many_keys_of_a_pending_pod_do_not_multiply_attempts(cpu: int, launched: int) -> None:
    """The existing nodes have five values of each key, and some lack it."""
    keys = [f"example.com/key-{number}" for number in range(12)]
    nodes = [
        node(f"n{index}", cpu=1, labels={ZONE: "a"} | dict.fromkeys(keys[index % 3 :: 2], f"v{index % 5}"))
        for index in range(15)
    ]
    terms = tuple(AffinityTerm(key=key, selector=(), namespace_selector=()) for key in keys)
    plan = build_cluster(pool(), *nodes, pod("excluding", cpu=99, anti_affinity=terms), pod("p", cpu=cpu)).plan()
    assert len(plan.claims) == launched and len(plan.unschedulable) == 2 - launched


@pytest.mark.parametrize("key", ["failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"])
def test_other_names_of_the_zone_label_are_topology_keys(key: str) -> None:
    plan = build_cluster(pool(), *web(4, anti_affinity=term(key))).plan()
    assert by_zone(plan) == {"a": 1, "b": 1, "c": 1} and len(plan.unschedulable) == 1
    assert by_zone(build_cluster(pool(), *web(6, spreads=spread(key))).plan()) == {"a": 2, "b": 2, "c": 2}


def test_groups_ignore_anti_affinity_without_nodes_for_it() -> None:
    topology_groups = TopologyGroups(may_have_label=lambda key: key == ZONE)
    by_rack, by_zones = (pod(labels=APP, anti_affinity=term(key)) for key in (RACK, ZONE))
    topology_groups.add_shapes(map(build_pod_shape, (by_rack, by_zones)))
    assert {group.topology_index.key for group in topology_groups.groups} == {ZONE}


# --- several required affinity terms ---

DB_AND_CACHE = term(ZONE, "app In db") + term(ZONE, "tier In cache")


def peer(name: str, *, on: str, namespace: str = "default", **labels: str) -> PodFact:
    return pod(name, node=on, namespace=namespace, labels=labels, cpu=0.1)


def test_affinity_terms_must_select_one_and_the_same_pod() -> None:
    separate = peer("db", on="n", app="db"), peer("cache", on="n", tier="cache")
    plan = build_cluster(pool(), node("n"), *separate, pod("p", affinity=DB_AND_CACHE)).plan()
    assert not plan.claims and not plan.nominations
    assert reasons(plan) == [f"pod affinity on {ZONE}: no pod that all of its required terms select is in a, b, c"]
    both = peer("both", on="n", app="db", tier="cache")
    plan = build_cluster(pool(), node("n"), both, pod("p", affinity=DB_AND_CACHE)).plan()
    assert plan.nominations == {"p": "n"}


def test_affinity_terms_of_the_same_plan_must_select_one_and_the_same_pod() -> None:
    follower = pod("follower", affinity=DB_AND_CACHE)
    plan = build_cluster(pool(), pod("db", labels={"app": "db"}), pod("c", labels={"tier": "cache"}), follower).plan()
    assert [one.name for one in plan.unschedulable] == ["follower"]
    leader = pod("leader", labels={"app": "db", "tier": "cache"})
    assert not build_cluster(pool(), leader, follower).plan().unschedulable


def test_first_pod_must_satisfy_all_of_its_affinity_terms() -> None:
    labels = {"app": "db", "tier": "cache"}
    plan = build_cluster(pool(), *(pod(labels=labels, affinity=DB_AND_CACHE) for _ in range(9))).plan()
    assert len(by_zone(plan)) == 1 and not plan.unschedulable
    assert len(build_cluster(pool(), pod(labels={"app": "db"}, affinity=DB_AND_CACHE)).plan().unschedulable) == 1


def test_first_pod_may_go_anywhere_although_other_pods_satisfy_single_terms() -> None:
    separate = peer("db", on="n", app="db"), peer("cache", on="n", tier="cache")
    first = pod("p", cpu=4, labels={"app": "db", "tier": "cache"}, affinity=DB_AND_CACHE)
    only_b = pool("default", f"{ZONE} In b")
    plan = build_cluster(only_b, node("n", cpu=1), *separate, first).plan()
    assert by_zone(plan) == {"b": 1}


def test_pod_is_not_the_first_if_a_pod_counts_for_another_key() -> None:
    """kube-scheduler counts the running pod in its zone, and in no rack."""
    both = term(ZONE) + term(RACK)
    running = pod("running", node="n", labels=APP)
    plan = build_cluster(RACKS, node("n"), running, *web(1, affinity=both)).plan()
    assert len(plan.unschedulable) == 1 and not plan.claims
    plan = build_cluster(RACKS, racked("n", "r1"), running, *web(1, affinity=both)).plan()
    assert len(plan.nominations) == 1


def test_first_pods_with_zone_and_hostname_affinity_share_a_node() -> None:
    plan = build_cluster(pool(), *web(4, affinity=term(ZONE) + term(HOSTNAME))).plan()
    assert sizes(plan) == [4] and not plan.unschedulable


@pytest.mark.parametrize(("namespaces", "satisfied"), [(("both",), True), (("first", "second"), False)])
def test_affinity_terms_count_pods_in_the_namespaces_of_all_terms(
    namespaces: tuple[str, ...], *, satisfied: bool
) -> None:
    terms = term(namespaces=("first", "both")) + term(namespaces=("second", "both"))
    running = [peer(name, on="n", namespace=name, app="web") for name in namespaces]
    plan = build_cluster(pool(), node("n"), *running, pod("p", affinity=terms)).plan()
    assert bool(plan.nominations) == satisfied == (not plan.unschedulable)


def test_affinity_term_for_all_namespaces_does_not_widen_another_term() -> None:
    terms = term(ZONE, "tier Exists", namespace_selector=()) + term(namespaces=("shop",))
    web_in_shop, front = peer("r1", on="n", namespace="shop", app="web"), peer("r2", on="n", app="web", tier="front")
    assert build_cluster(pool(), node("n"), web_in_shop, front, pod("p", affinity=terms)).plan().unschedulable
    both = peer("r3", on="n", namespace="shop", app="web", tier="front")
    assert build_cluster(pool(), node("n"), both, pod("p", affinity=terms)).plan().nominations


def test_affinity_term_without_selector_selects_no_pod() -> None:
    terms = (*term(), AffinityTerm(key=ZONE, selector=None))
    running = peer("r", on="n", app="web")
    assert build_cluster(pool(), node("n"), running, pod("p", labels=APP, affinity=terms)).plan().unschedulable


def test_label_keys_of_several_terms_apply_to_the_same_pod() -> None:
    term_json = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
    terms = [{**term_json, "matchLabelKeys": ["rev"]}, {**term_json, "mismatchLabelKeys": ["tier"]}]
    raw = pod_json("p", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    raw["metadata"]["labels"] = {"app": "web", "rev": "2", "tier": "front"}
    same_revision = peer("r1", on="n", app="web", rev="2", tier="front")
    other_tier = peer("r2", on="n", app="web", rev="1", tier="back")
    assert build_cluster(pool(), node("n"), same_revision, other_tier, read_pod(raw)).plan().unschedulable
    selected = peer("r3", on="n", app="web", rev="2", tier="back")
    assert build_cluster(pool(), node("n"), same_revision, selected, read_pod(raw)).plan().nominations


def test_daemonset_pod_must_satisfy_all_affinity_terms() -> None:
    on_node = term(HOSTNAME, "app In db") + term(HOSTNAME, "tier In cache")
    single = [daemonset(str(labels), pod(cpu=0.1, labels=labels)) for labels in ({"app": "db"}, {"tier": "cache"})]
    assert build_cluster(pool(), *single, pod("p", affinity=on_node)).plan().unschedulable
    both = daemonset("both", pod("both", cpu=0.1, labels={"app": "db", "tier": "cache"}))
    assert sizes(build_cluster(pool(), both, pod("p", affinity=on_node)).plan()) == [1]


# --- several hard spread constraints ---

ZONE_AND_CAPACITY_TYPE = spread() + spread(CAPACITY_TYPE)


def test_spread_ignores_nodes_that_lack_the_key_of_another_constraint() -> None:
    """Three pods run on a node without a capacity type. kube-scheduler counts none of them."""
    foreign = node("foreign", labels={ZONE: "a", INSTANCE_TYPE: "m.2xlarge"}, cpu=3)
    running = web(3, node="foreign")
    pods = web(6, spreads=ZONE_AND_CAPACITY_TYPE)
    plan = build_cluster(pool(), foreign, *running, *pods, instance_types=BOTH_CAPACITY_TYPES).plan()
    assert by_zone(plan) == {"a": 2, "b": 2, "c": 2} and not plan.unschedulable
    soft = web(6, spreads=spread() + spread(CAPACITY_TYPE, hard=False))
    plan = build_cluster(pool(), foreign, *running, *soft, instance_types=BOTH_CAPACITY_TYPES).plan()
    assert by_zone(plan) == {"b": 3, "c": 3}, "a soft constraint excludes no node"


@pytest.mark.parametrize("honor", [True, False])
def test_domain_of_nodes_that_lack_another_key_is_no_domain(*, honor: bool) -> None:
    """Otherwise it would be the emptiest domain, in which no pod can run."""
    foreign = node("foreign", labels={ZONE: "z"})
    pods = web(9, spreads=spread(honor_affinity=honor) + spread(CAPACITY_TYPE))
    plan = build_cluster(pool(), foreign, *pods, instance_types=BOTH_CAPACITY_TYPES).plan()
    assert by_zone(plan) == {"a": 3, "b": 3, "c": 3} and not plan.unschedulable


def test_domain_of_nodes_that_lack_another_key_does_not_count_for_min_domains() -> None:
    foreign = node("foreign", labels={ZONE: "z"})
    pods = web(6, spreads=spread(min_domains=4) + spread(CAPACITY_TYPE))
    plan = build_cluster(pool(), foreign, *pods, instance_types=BOTH_CAPACITY_TYPES).plan()
    assert by_zone(plan) == {"a": 1, "b": 1, "c": 1} and len(plan.unschedulable) == 3


def test_new_nodes_that_lack_another_key_are_no_domain() -> None:
    """Only the NodePool in zone a has the label of the other constraint."""
    pools = pool("racks", f"{RACK} In r1 r2", f"{ZONE} In a"), pool("open", f"{ZONE} In b c")
    plan = build_cluster(*pools, *web(4, spreads=spread() + spread(RACK))).plan()
    assert by_zone(plan) == {"a": 4} and not plan.unschedulable


def test_spread_counts_no_pods_on_new_nodes_that_lack_another_key() -> None:
    pools = pool("racks", f"{RACK} In r1", weight=1), pool("open")
    first = web(2, cpu=6, priority=1, selector={"karpenter.sh/nodepool": "open", ZONE: "a"})
    limited = web(3, spreads=spread() + spread(RACK))
    plan = build_cluster(*pools, *first, *limited).plan()
    found = Counter(values_of(one, ZONE)[0] for one in plan.claims if one.pool == "racks" for _ in one.pods)
    assert found == {"a": 1, "b": 1, "c": 1}


def test_terminating_pods_do_not_count_for_spread() -> None:
    existing = node("n", labels={ZONE: "a", CAPACITY_TYPE: "on-demand"}, cpu=2)
    plan = build_cluster(pool(), existing, *web(2, node="n", deleting=True), *web(3, spreads=spread())).plan()
    assert by_zone(plan) == {"a": 1, "b": 1, "c": 1}


def test_spread_with_an_empty_selector_counts_no_pods() -> None:
    plan = build_cluster(pool(), *web(5, spreads=spread(selector=()))).plan()
    assert len(by_zone(plan)) == 1 and not plan.unschedulable
