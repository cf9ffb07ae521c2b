"""Which nodes count for topology spread, and how far pods may run ahead of a domain that takes no more."""

from collections import Counter

import pytest

from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, ZONE
from tenure.model.facts import HostPort, PodFact
from tests.unit.scheduling.builders import (
    daemonset,
    expressions,
    instance_type,
    node,
    pod,
    pool,
    reasons,
    taint,
    toleration,
    types_of,
    values_of,
)
from tests.unit.scheduling.packing.test_topology import APP, build_cluster, by_zone, sizes, spread, term, web

TEAM = "team"


def zones_of(nominations: dict[str, str]) -> Counter[str]:
    return Counter(nominations.values())


def test_a_preferred_zone_does_not_hide_the_others_from_the_spread() -> None:
    plan = build_cluster(pool(), *web(6, spreads=spread(), preferred={f"{ZONE} In a": 9})).plan()
    assert by_zone(plan) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(("honor", "expected"), [(True, 6), (False, 3)])
def test_a_zone_with_nodes_that_the_pods_cannot_use_counts_only_where_affinity_is_ignored(
    honor: bool, expected: int
) -> None:
    elsewhere = node("n", labels={ZONE: "d", TEAM: "x"})
    plan = build_cluster(
        pool(template_labels={TEAM: "y"}),
        elsewhere,
        *web(6, spreads=spread(honor_affinity=honor), selector={TEAM: "y"}),
    ).plan()
    assert sum(by_zone(plan).values()) == expected


@pytest.mark.parametrize(("honor", "expected"), [(False, 3), (True, 6)])
def test_a_zone_with_tainted_nodes_counts_unless_taints_are_honoured(honor: bool, expected: int) -> None:
    tainted = node("n", labels={ZONE: "d"}, taints=(taint("dedicated"),))
    plan = build_cluster(pool(), tainted, *web(6, spreads=spread(honor_taints=honor))).plan()
    assert sum(by_zone(plan).values()) == expected


def test_pods_on_new_nodes_that_a_spread_does_not_notice_are_not_counted() -> None:
    large = [pod(labels=APP, cpu=3, selector={TEAM: "x", ZONE: "a"}) for _ in range(3)]
    plan = build_cluster(
        pool("x", template_labels={TEAM: "x"}),
        pool("y", template_labels={TEAM: "y"}),
        *large,
        *web(6, spreads=spread(), selector={TEAM: "y"}),
    ).plan()
    found: Counter[str] = Counter()
    for one in plan.claims:
        if one.pool == "y":
            found[values_of(one, ZONE)[0]] += len(one.pods)
    assert found == {"a": 2, "b": 2, "c": 2}


def test_pods_do_not_run_ahead_of_a_zone_whose_nodes_are_full() -> None:
    nodes = [node(name, labels={ZONE: name}, cpu=cpu) for name, cpu in (("a", 9), ("b", 9), ("c", 1.5))]
    plan = build_cluster(*nodes, *web(12, spreads=spread())).plan()
    assert zones_of(plan.nominations) == {"a": 2, "b": 2, "c": 1}
    assert len(plan.unschedulable) == 7 and "topology spread" in reasons(plan)[0]


def test_new_nodes_do_not_run_ahead_of_a_zone_where_none_can_be_bought() -> None:
    there = node("n", labels={ZONE: "z"}, cpu=3.5)
    plan = build_cluster(pool(), there, *web(40, spreads=spread())).plan()
    assert zones_of(plan.nominations) == {"n": 3}
    assert by_zone(plan) == {"a": 4, "b": 4, "c": 4} and len(plan.unschedulable) == 25


def test_new_nodes_do_not_run_ahead_of_a_zone_that_sells_no_type_large_enough() -> None:
    instance_types = (
        instance_type("m.large", cpu=2, memory=8),
        instance_type("g.large", extra={"nvidia.com/gpu": 4}, zones=("a", "b")),
    )
    plan = build_cluster(
        pool(), *web(9, spreads=spread(), extra={"nvidia.com/gpu": 1}), instance_types=instance_types
    ).plan()
    assert by_zone(plan) == {"a": 1, "b": 1} and len(plan.unschedulable) == 7


def test_enough_domains_are_counted_over_what_the_pods_may_use() -> None:
    elsewhere = node("n", labels={ZONE: "d", TEAM: "x"})
    plan = build_cluster(
        pool(template_labels={TEAM: "y"}),
        elsewhere,
        *web(6, spreads=spread(min_domains=4), selector={TEAM: "y"}),
    ).plan()
    assert by_zone(plan) == {"a": 1, "b": 1, "c": 1}
    assert "a has 1, b has 1, c has 1, fewer than minDomains 4, so the minimum is 0" in reasons(plan)[0]


def test_pods_spread_over_the_values_that_they_choose_themselves() -> None:
    """A pool lets its pods say which team a node is of."""
    plan = build_cluster(
        pool("default", f"{TEAM} Exists"), *web(4, spreads=spread(TEAM), terms=(expressions(f"{TEAM} In r g"),))
    ).plan()
    found = Counter({one.labels[TEAM]: len(one.pods) for one in plan.claims})
    assert found == {"r": 2, "g": 2}


@pytest.mark.parametrize("key", [CAPACITY_TYPE, "topology.k8s.aws/zone-id"])
def test_other_labels_of_offerings_are_spread_over(key: str) -> None:
    instance_types = (instance_type("m.large", cpu=4, capacity_types=("spot", "on-demand")),)
    plan = build_cluster(pool(), *web(6, spreads=spread(key)), instance_types=instance_types).plan()
    found: Counter[str] = Counter()
    for one in plan.claims:
        (value,) = values_of(one, key)
        found[value] += len(one.pods)
    assert sorted(found.values()) == ([3, 3] if key == CAPACITY_TYPE else [2, 2, 2])


def test_the_reason_says_where_those_are_that_a_pod_keeps_away_from() -> None:
    plan = build_cluster(pool(), *web(4, anti_affinity=term())).plan()
    assert reasons(plan) == [f"pod anti-affinity on {ZONE}: selected pods are in each of a, b, c"]
    plan = build_cluster(pool(), pod(affinity=term(ZONE, "app In none"))).plan()
    assert reasons(plan) == [f"pod affinity on {ZONE}: none of the selected pods is in a, b, c"]
    plan = build_cluster(pool(), *web(1, spreads=spread("rack"))).plan()
    assert reasons(plan) == ["no launchable node and no existing node has the label rack"]


# --- host ports of DaemonSets ---

ARCH = "kubernetes.io/arch"
INSTANCE_TYPES = (
    instance_type("arm.large", cpu=4, price=0.01, labels={ARCH: "arm64"}),
    instance_type("amd.large", cpu=4),
)
PORTS = (HostPort(port=9100),)


def on_arm() -> PodFact:
    return pod("agent", cpu=0.1, host_ports=PORTS, selector={ARCH: "arm64"}, tolerations=(toleration(),))


def test_a_daemonsets_port_is_taken_only_on_the_types_that_it_runs_on() -> None:
    plan = build_cluster(
        pool(), daemonset("agent", on_arm()), pod("p", host_ports=PORTS), instance_types=INSTANCE_TYPES
    ).plan()
    (bought,) = plan.claims
    assert types_of(bought) == ("amd.large",)


def test_a_port_joins_a_node_only_where_no_type_has_it_taken() -> None:
    """The larger pod makes the node; the one with the port may join, and then the types with the DaemonSet are out."""
    there = pod("large", cpu=2, selector={ARCH: "amd64"})
    plan = build_cluster(
        pool(), daemonset("agent", on_arm()), there, pod("p", host_ports=PORTS), instance_types=INSTANCE_TYPES
    ).plan()
    (bought,) = plan.claims
    assert types_of(bought) == ("amd.large",) and len(bought.pods) == 2


def test_a_port_that_a_daemonset_takes_everywhere_is_named() -> None:
    everywhere = pod("agent", cpu=0.1, host_ports=PORTS, tolerations=(toleration(),))
    plan = build_cluster(
        pool(), daemonset("agent", everywhere), pod("p", host_ports=PORTS), instance_types=INSTANCE_TYPES
    ).plan()
    assert "host port 9100" in reasons(plan)[0]


def test_hostname_spread_needs_no_other_node_to_be_full() -> None:
    plan = build_cluster(pool(), node("n", cpu=0.5), *web(3, spreads=spread(HOSTNAME))).plan()
    assert len(plan.claims) == 3 and not plan.unschedulable


# --- pods that have to join a node of this plan ---


def follower(number: int, key: str = HOSTNAME) -> list[PodFact]:
    terms = term(key, "app In db")
    return [pod(f"f{n}", labels={"app": "f"}, affinity=terms) for n in range(number)]


def test_a_new_node_grows_with_the_pods_that_must_be_on_it() -> None:
    plan = build_cluster(pool(), pod("db", labels={"app": "db"}, cpu=1.5), *follower(4)).plan()
    (bought,) = plan.claims
    assert types_of(bought) == ("m.2xlarge",) and len(bought.pods) == 5 and not plan.unschedulable


def test_a_new_node_grows_as_far_as_types_go_and_the_rest_is_told() -> None:
    plan = build_cluster(pool(), pod("db", labels={"app": "db"}, cpu=1.5), *follower(9)).plan()
    assert sizes(plan) == [7] and "affinity" in reasons(plan)[0] and len(plan.unschedulable) == 3


@pytest.mark.parametrize(("limit", "pod_count"), [(8000, 5), (7999, 3), (3000, 1)])
def test_a_new_node_grows_no_further_than_the_limits(limit: int, pod_count: int) -> None:
    plan = build_cluster(pool(limits={"cpu": limit}), pod("db", labels={"app": "db"}, cpu=1.5), *follower(4)).plan()
    assert sizes(plan) == [pod_count]


def test_a_new_node_that_grows_keeps_its_variety() -> None:
    needed = "node.kubernetes.io/instance-type Exists minValues=2"
    plan = build_cluster(pool("default", needed), pod("db", labels={"app": "db"}, cpu=1.5), *follower(4)).plan()
    assert sizes(plan) == [3] and len(types_of(plan.claims[0])) == 2


# --- limits ---


def test_nodes_of_a_pool_without_a_claim_count_against_its_limits() -> None:
    """As where only Nodes are known: reference 2.11 counts every node of the pool."""
    there = node("n", cpu=8, labels={"karpenter.sh/nodepool": "default"}, taints=(taint("full"),))
    plan = build_cluster(pool(limits={"cpu": 9000}), there, pod("p", cpu=1)).plan()
    assert "limit cpu" in reasons(plan)[0]
