"""Topology spread, pod affinity, anti-affinity and host ports."""

from collections import Counter
from typing import Any

import pytest

from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, ZONE
from tenure.model.facts import AffinityTerm, HostPort, PodFact, SpreadConstraint
from tenure.model.instance_types import InstanceType
from tenure.model.plan import Plan
from tenure.scheduling.packing.topology import TopologyIndex
from tenure.scheduling.settings import PlanSettings
from tests.unit.scheduling.builders import (
    COMMON,
    Cluster,
    expressions,
    instance_type,
    node,
    pod,
    pool,
    reasons,
    toleration,
    types_of,
    values_of,
)

APP = {"app": "web"}


def build_cluster(*facts: Any, instance_types: tuple[InstanceType, ...] = COMMON, **settings: Any) -> Cluster:
    return Cluster(*facts, instance_types=instance_types, settings=PlanSettings.model_validate(settings))


WEB = expressions("app In web")


def web(number: int, **more: object) -> list[PodFact]:
    return [pod(labels=APP, **more) for _ in range(number)]  # type: ignore[arg-type]


def spread(key: str = ZONE, **more: object) -> tuple[SpreadConstraint, ...]:
    return (SpreadConstraint.model_validate({"key": key, "max_skew": 1, "selector": WEB, **more}),)


def term(key: str = ZONE, selector: str = "app In web", **more: object) -> tuple[AffinityTerm, ...]:
    return (AffinityTerm.model_validate({"key": key, "selector": expressions(selector), **more}),)


def by_zone(plan: Plan) -> Counter[str]:
    """Number of pods by zone of their NodeClaim; the key is empty without a single zone."""
    found: Counter[str] = Counter()
    for one in plan.claims:
        zones = values_of(one, ZONE)
        found[zones[0] if len(zones) == 1 else ""] += len(one.pods)
    return found


def sizes(plan: Plan) -> list[int]:
    return sorted(len(one.pods) for one in plan.claims)


# --- spread ---


def test_spread_counts_running_pods() -> None:
    existing = node("n", labels={ZONE: "a"}, cpu=4)
    plan = build_cluster(pool(), existing, *web(3, node="n"), *web(6, spreads=spread())).plan()
    assert by_zone(plan) == {"b": 3, "c": 3} and not plan.nominations


def test_larger_max_skew_allows_uneven_zones() -> None:
    existing = node("n", labels={ZONE: "a"}, cpu=8)
    plan = build_cluster(pool("default", f"{ZONE} In a b"), existing, *web(2, spreads=spread(max_skew=2))).plan()
    assert len(plan.nominations) + sum(len(one.pods) for one in plan.claims) == 2


def test_zone_without_offerings_does_not_limit_the_spread() -> None:
    only_ab = instance_type("m.2xlarge", cpu=8, memory=32, zones=("a", "b"))
    plan = build_cluster(pool(), *web(6, spreads=spread()), instance_types=(only_ab,)).plan()
    assert by_zone(plan) == {"a": 3, "b": 3}


def test_pods_spread_over_zones_get_the_cheapest_nodes_in_each_zone() -> None:
    """Three pods fit one m.4xlarge, which costs more than an m.2xlarge and an m.xlarge together."""
    instance_types = (
        instance_type("m.xlarge", cpu=4, memory=16, price=0.24),
        instance_type("m.2xlarge", cpu=8, memory=32, price=0.36),
        instance_type("m.4xlarge", cpu=16, memory=64, price=0.88),
    )
    plan = build_cluster(pool(), *web(7, cpu=3, spreads=spread()), instance_types=instance_types).plan()
    assert sorted(by_zone(plan).values()) == [2, 2, 3]
    assert sorted(types_of(one)[0] for one in plan.claims) == ["m.2xlarge", "m.2xlarge", "m.2xlarge", "m.xlarge"]


@pytest.mark.parametrize("limits", [{"nodes": 5}, {"cpu": 10_000}])
def test_spread_stays_even_when_a_limit_is_reached(limits: dict[str, int]) -> None:
    small = instance_type("m.large", cpu=2, memory=8)
    plan = build_cluster(pool(limits=limits), *web(9, spreads=spread()), instance_types=(small,)).plan()
    counts = by_zone(plan)
    assert max(counts.values()) - min(counts[zone] for zone in "abc") <= 1
    assert sum(counts.values()) == 5 and len(plan.unschedulable) == 4


def test_hostname_spread_limits_pods_per_node() -> None:
    plan = build_cluster(pool(), *web(9, spreads=spread(HOSTNAME, max_skew=3))).plan()
    assert sizes(plan) == [3, 3, 3]


def test_zone_and_hostname_spread_combine() -> None:
    both = spread() + spread(HOSTNAME)
    plan = build_cluster(pool(), *web(6, spreads=both)).plan()
    assert sizes(plan) == [1] * 6 and set(by_zone(plan).values()) == {2}


def test_spread_over_zones_and_capacity_types_has_a_binding_order() -> None:
    """kube-scheduler binds pods one by one, and each must keep both skews: the first two need on-demand capacity in
    different zones."""
    types = (instance_type("m.2xlarge", cpu=8, memory=32, capacity_types=("spot", "on-demand")),)
    existing = node("n", labels={ZONE: "c", CAPACITY_TYPE: "spot"}, cpu=2)
    both = spread() + spread(CAPACITY_TYPE)
    plan = build_cluster(pool(), existing, *web(2, node="n"), *web(3, spreads=both), instance_types=types).plan()
    places = [(values_of(one, ZONE), values_of(one, CAPACITY_TYPE)) for one in plan.claims for _ in one.pods]
    assert len(places) == 3 and {(("a",), ("on-demand",)), (("b",), ("on-demand",))} <= set(places)


def test_pods_are_spread_over_capacity_types() -> None:
    types = (instance_type("m.2xlarge", cpu=8, memory=32, capacity_types=("spot", "on-demand")),)
    plan = build_cluster(pool(), *web(4, spreads=spread(CAPACITY_TYPE)), instance_types=types).plan()
    found: Counter[tuple[str, ...]] = Counter()
    for one in plan.claims:
        found[values_of(one, CAPACITY_TYPE)] += len(one.pods)
    assert found == {("spot",): 2, ("on-demand",): 2}


def test_pods_are_spread_over_a_custom_label() -> None:
    racks = pool("default", "example.com/rack In r1 r2")
    plan = build_cluster(racks, *web(4, spreads=spread("example.com/rack"))).plan()
    assert sorted(sum(len(c.pods) for c in plan.claims if c.labels["example.com/rack"] == r) for r in ("r1", "r2")) == [
        2,
        2,
    ]


def test_missing_min_domains_count_as_empty() -> None:
    one_zone = instance_type("m.2xlarge", cpu=8, memory=32, zones=("a",))
    plan = build_cluster(pool(), *web(3, spreads=spread(min_domains=2)), instance_types=(one_zone,)).plan()
    assert sum(by_zone(plan).values()) == 1 and len(plan.unschedulable) == 2
    assert "topology spread on topology.kubernetes.io/zone" in reasons(plan)[0]


def test_schedule_anyway_spread_is_dropped_if_necessary() -> None:
    one_zone = instance_type("m.2xlarge", cpu=8, memory=32, zones=("a",))
    plan = build_cluster(pool(), *web(4, spreads=spread(hard=False, min_domains=3)), instance_types=(one_zone,)).plan()
    assert not plan.unschedulable and by_zone(plan)["a"] + by_zone(plan)[""] == 4


def test_preferences_can_be_ignored() -> None:
    web_pods = web(6, spreads=spread(HOSTNAME, hard=False))
    assert len(build_cluster(pool(), *web_pods).plan().claims) == 6
    assert len(build_cluster(pool(), *web_pods, preference_policy="Ignore").plan().claims) == 1


# --- affinity ---


def test_pods_with_zone_affinity_share_one_zone() -> None:
    plan = build_cluster(pool(), *web(20, affinity=term())).plan()
    assert len(by_zone(plan)) == 1 and "" not in by_zone(plan) and not plan.unschedulable


def test_hundreds_of_equal_pods_in_one_zone_fill_the_cheaper_type() -> None:
    """A c.8xlarge fits 31 pods by memory, an m.8xlarge fits 35 by CPU."""
    instance_types = (
        instance_type("c.8xlarge", cpu=32, memory=64, price=1.53),
        instance_type("m.8xlarge", cpu=32, memory=128, price=1.45),
    )
    plan = build_cluster(pool(), *web(240, cpu=0.9, memory=2, affinity=term()), instance_types=instance_types).plan()
    assert {types_of(one)[0] for one in plan.claims} == {"m.8xlarge"}
    assert sizes(plan) == [30, 35, 35, 35, 35, 35, 35]


def test_pod_with_affinity_joins_the_zone_of_running_pods() -> None:
    existing = node("n", labels={ZONE: "b"}, cpu=1)
    plan = build_cluster(pool(), existing, *web(1, node="n"), pod(affinity=term())).plan()
    assert by_zone(plan) == {"b": 1}


def test_affinity_is_satisfied_by_a_pod_of_the_same_plan() -> None:
    """The follower is larger and therefore comes first in the order."""
    plan = build_cluster(pool(), pod("leader", labels=APP), pod("follower", cpu=4, affinity=term())).plan()
    assert not plan.unschedulable
    assert len(by_zone(plan)) == 1 and "" not in by_zone(plan)


def test_hostname_affinity_fills_one_node() -> None:
    plan = build_cluster(pool(), *web(5, affinity=term(HOSTNAME))).plan()
    assert sizes(plan) == [5]
    plan = build_cluster(pool(), *web(9, affinity=term(HOSTNAME))).plan()
    assert sizes(plan) == [7] and len(plan.unschedulable) == 2


def test_preferred_affinity_is_dropped_if_necessary() -> None:
    plan = build_cluster(pool(), *web(9, affinity=term(HOSTNAME, weight=1))).plan()
    assert sum(sizes(plan)) == 9 and not plan.unschedulable


# --- anti-affinity ---


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_anti_affinity_of_a_running_pod_excludes_only_pods_with_its_labels(names: tuple[str, str]) -> None:
    """Otherwise equal pods are planned together."""
    running = pod("r", node="n", anti_affinity=term(HOSTNAME))
    selected, other = pod(names[0], labels=APP), pod(names[1])
    plan = build_cluster(node("n", cpu=16), running, selected, other).plan()
    assert plan.nominations == {names[1]: "n"}


def test_hostname_anti_affinity_gives_each_pod_a_node() -> None:
    assert sizes(build_cluster(pool(), *web(4, anti_affinity=term(HOSTNAME))).plan()) == [1, 1, 1, 1]


def test_anti_affinity_of_a_planned_pod_excludes_others() -> None:
    plan = build_cluster(pool(), pod("guard", cpu=4, anti_affinity=term()), *web(2)).plan()
    guarded = next(values_of(one, ZONE) for one in plan.claims if "guard" in one.pods)
    others = {values_of(one, ZONE) for one in plan.claims if "guard" not in one.pods}
    assert len(guarded) == 1 and all(guarded != zones and len(zones) == 1 for zones in others)


def test_affinity_term_applies_to_its_namespaces() -> None:
    existing = node("n", labels={ZONE: "a"}, cpu=8)
    other_namespace_pod = pod("s", node="n", namespace="other", labels=APP)
    assert build_cluster(pool(), existing, other_namespace_pod, pod(anti_affinity=term(HOSTNAME))).plan().nominations
    listed_namespace = pod(anti_affinity=term(HOSTNAME, namespaces=("other",)))
    assert not build_cluster(pool(), existing, other_namespace_pod, listed_namespace).plan().nominations
    all_namespaces = pod(anti_affinity=term(HOSTNAME, namespace_selector=()))
    assert not build_cluster(pool(), existing, other_namespace_pod, all_namespaces).plan().nominations


# --- host ports ---


@pytest.mark.parametrize(
    ("first", "second", "nodes"),
    [
        (HostPort(port=80), HostPort(port=80), 2),
        (HostPort(port=80), HostPort(port=81), 1),
        (HostPort(port=80), HostPort(port=80, protocol="UDP"), 1),
        (HostPort(port=80, address="10.0.0.1"), HostPort(port=80, address="10.0.0.2"), 1),
        (HostPort(port=80, address="10.0.0.1"), HostPort(port=80), 2),
    ],
)
def test_host_ports_conflict_by_address_port_and_protocol(first: HostPort, second: HostPort, nodes: int) -> None:
    assert len(build_cluster(pool(), pod(host_ports=(first,)), pod(host_ports=(second,))).plan().claims) == nodes


def test_host_port_of_a_running_pod_is_occupied() -> None:
    port = (HostPort(port=80),)
    plan = build_cluster(pool(), node("n"), pod(node="n", host_ports=port), pod(host_ports=port)).plan()
    assert not plan.nominations and len(plan.claims) == 1


# --- selectors ---


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("app In web", {"app": "web"}, True),
        ("app NotIn web", {"app": "web"}, False),
        ("app NotIn web", {}, True),
        ("app Exists", {"app": ""}, True),
        ("app DoesNotExist", {"app": "x"}, False),
    ],
)
def test_selector_matches_as_in_the_api(selector: str, labels: dict[str, str], selected: bool) -> None:
    assert TopologyIndex(ZONE, None, expressions(selector)).selects("any", labels) is selected


def test_absent_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not TopologyIndex(ZONE, None, None).selects("any", {"app": "web"})
    assert TopologyIndex(ZONE, None, ()).selects("any", {})


def test_node_taints_policy_decides_which_nodes_count() -> None:
    tainted = node("n", labels={ZONE: "a"}, cpu=4, taints=[{"key": "k", "effect": "NoSchedule"}])
    running = web(2, node="n", tolerations=(toleration("k"),))
    ignoring = build_cluster(pool(), tainted, *running, *web(4, spreads=spread())).plan()
    assert by_zone(ignoring) == {"b": 2, "c": 2}
    honoring = build_cluster(pool(), tainted, *running, *web(3, spreads=spread(honor_taints=True))).plan()
    assert by_zone(honoring) == {"a": 1, "b": 1, "c": 1}
