"""Nodes without a topology key, and pods with several topology keys, as kube-scheduler treats them."""

import pytest

from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, ZONE
from tenure.kube.facts.pods import read_pod
from tenure.model.facts import AffinityTerm, NodeFact, PodFact
from tests.support.controller.builders import pod as pod_json
from tests.unit.scheduling.builders import daemonset, node, pod, pool, reasons
from tests.unit.scheduling.packing.test_topology import (
    APP,
    build_cluster,
    by_zone,
    sizes,
    term,
    web,
)

RACK = "rack"
RACKS = pool("racks", f"{RACK} In r1 r2")


def racked(name: str, rack: str, **more: object) -> NodeFact:
    return node(name, labels={ZONE: "a", CAPACITY_TYPE: "on-demand", RACK: rack}, **more)  # type: ignore[arg-type]


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
