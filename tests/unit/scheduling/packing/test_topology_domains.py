"""Nodes that count for topology spread, and the skew towards domains without capacity."""

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


def test_preferred_zone_does_not_reduce_the_spread_domains() -> None:
    plan = build_cluster(pool(), *web(6, spreads=spread(), preferred={f"{ZONE} In a": 9})).plan()
    assert by_zone(plan) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(("honor", "expected"), [(True, 6), (False, 3)])
def test_zone_with_unusable_nodes_counts_only_if_affinity_is_ignored(honor: bool, expected: int) -> None:
    elsewhere = node("n", labels={ZONE: "d", TEAM: "x"})
    plan = build_cluster(
        pool(template_labels={TEAM: "y"}),
        elsewhere,
        *web(6, spreads=spread(honor_affinity=honor), selector={TEAM: "y"}),
    ).plan()
    assert sum(by_zone(plan).values()) == expected


@pytest.mark.parametrize(("honor", "expected"), [(False, 3), (True, 6)])
def test_zone_with_tainted_nodes_counts_unless_taints_are_honored(honor: bool, expected: int) -> None:
    tainted = node("n", labels={ZONE: "d"}, taints=(taint("dedicated"),))
    plan = build_cluster(pool(), tainted, *web(6, spreads=spread(honor_taints=honor))).plan()
    assert sum(by_zone(plan).values()) == expected


def test_spread_ignores_pods_on_nodes_outside_of_its_affinity() -> None:
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


def test_spread_is_limited_by_a_zone_with_full_nodes() -> None:
    nodes = [node(name, labels={ZONE: name}, cpu=cpu) for name, cpu in (("a", 9), ("b", 9), ("c", 1.5))]
    plan = build_cluster(*nodes, *web(12, spreads=spread())).plan()
    assert zones_of(plan.nominations) == {"a": 2, "b": 2, "c": 1}
    assert len(plan.unschedulable) == 7 and "topology spread" in reasons(plan)[0]


def test_equally_empty_zone_with_room_on_a_node_comes_first() -> None:
    plan = build_cluster(pool(), node("n", labels={ZONE: "c"}, cpu=1.5), *web(2, spreads=spread())).plan()
    assert zones_of(plan.nominations) == {"n": 1} and by_zone(plan) == {"a": 1}


def test_spread_is_limited_by_a_zone_without_offerings() -> None:
    existing = node("n", labels={ZONE: "z"}, cpu=3.5)
    plan = build_cluster(pool(), existing, *web(40, spreads=spread())).plan()
    assert zones_of(plan.nominations) == {"n": 3}
    assert by_zone(plan) == {"a": 4, "b": 4, "c": 4} and len(plan.unschedulable) == 25


def test_spread_is_limited_by_a_zone_without_a_fitting_type() -> None:
    instance_types = (
        instance_type("m.large", cpu=2, memory=8),
        instance_type("g.large", extra={"nvidia.com/gpu": 4}, zones=("a", "b")),
    )
    plan = build_cluster(
        pool(), *web(9, spreads=spread(), extra={"nvidia.com/gpu": 1}), instance_types=instance_types
    ).plan()
    assert by_zone(plan) == {"a": 1, "b": 1} and len(plan.unschedulable) == 7


def test_spread_is_limited_by_a_zone_that_pod_affinity_excludes() -> None:
    """The pods must share a node, so the other zone gets none."""
    limited = [pod(cpu=1, labels=APP, spreads=spread(ZONE), affinity=term(HOSTNAME)) for _ in range(4)]
    plan = build_cluster(pool("default", f"{ZONE} In a b"), *limited).plan()
    assert sizes(plan) == [1]


def test_spread_counts_earlier_pods_whose_nodes_had_an_open_zone() -> None:
    """The plan then fixes their zones."""
    counted = [pod(f"counted-{number}", cpu=7, labels=APP, priority=1) for number in range(2)]
    limited = [pod(f"p{number}", cpu=3, labels=APP, spreads=spread(ZONE)) for number in range(2)]
    plan = build_cluster(pool("default", f"{ZONE} In a b"), *counted, *limited).plan()
    zones = Counter(zone for claim in plan.claims for zone in values_of(claim, ZONE) for _ in claim.pods)
    assert zones == {"a": 2, "b": 2}
    assert all(len(values_of(claim, ZONE)) == 1 for claim in plan.claims)


def test_min_domains_counts_only_usable_domains() -> None:
    elsewhere = node("n", labels={ZONE: "d", TEAM: "x"})
    plan = build_cluster(
        pool(template_labels={TEAM: "y"}),
        elsewhere,
        *web(6, spreads=spread(min_domains=4), selector={TEAM: "y"}),
    ).plan()
    assert by_zone(plan) == {"a": 1, "b": 1, "c": 1}
    assert "a has 1, b has 1, c has 1, fewer than minDomains 4, so the minimum is 0" in reasons(plan)[0]


def test_pods_are_spread_over_label_values_of_their_own_affinity() -> None:
    """The NodePool accepts any value of the label."""
    plan = build_cluster(
        pool("default", f"{TEAM} Exists"), *web(4, spreads=spread(TEAM), terms=(expressions(f"{TEAM} In r g"),))
    ).plan()
    found = Counter({one.labels[TEAM]: len(one.pods) for one in plan.claims})
    assert found == {"r": 2, "g": 2}


@pytest.mark.parametrize("key", [CAPACITY_TYPE, "topology.k8s.aws/zone-id"])
def test_pods_are_spread_over_other_labels_of_offerings(key: str) -> None:
    instance_types = (instance_type("m.large", cpu=4, capacity_types=("spot", "on-demand")),)
    plan = build_cluster(pool(), *web(6, spreads=spread(key)), instance_types=instance_types).plan()
    found: Counter[str] = Counter()
    for one in plan.claims:
        (value,) = values_of(one, key)
        found[value] += len(one.pods)
    assert sorted(found.values()) == ([3, 3] if key == CAPACITY_TYPE else [2, 2, 2])


def test_reason_names_the_domains_of_the_conflicting_pods() -> None:
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


def test_host_port_of_a_daemonset_is_occupied_only_on_its_types() -> None:
    plan = build_cluster(
        pool(), daemonset("agent", on_arm()), pod("p", host_ports=PORTS), instance_types=INSTANCE_TYPES
    ).plan()
    (planned,) = plan.claims
    assert types_of(planned) == ("amd.large",)


def test_pod_with_host_port_excludes_types_of_the_daemonset() -> None:
    """The larger pod needs a new node. The pod with the port may join, which excludes the types of the DaemonSet."""
    large_pod = pod("large", cpu=2, selector={ARCH: "amd64"})
    plan = build_cluster(
        pool(), daemonset("agent", on_arm()), large_pod, pod("p", host_ports=PORTS), instance_types=INSTANCE_TYPES
    ).plan()
    (planned,) = plan.claims
    assert types_of(planned) == ("amd.large",) and len(planned.pods) == 2


def test_host_port_of_a_daemonset_on_all_types_is_the_reason() -> None:
    unrestricted = pod("agent", cpu=0.1, host_ports=PORTS, tolerations=(toleration(),))
    plan = build_cluster(
        pool(), daemonset("agent", unrestricted), pod("p", host_ports=PORTS), instance_types=INSTANCE_TYPES
    ).plan()
    assert "host port 9100" in reasons(plan)[0]


def test_hostname_spread_is_not_limited_by_a_full_node() -> None:
    plan = build_cluster(pool(), node("n", cpu=0.5), *web(3, spreads=spread(HOSTNAME))).plan()
    assert len(plan.claims) == 3 and not plan.unschedulable


# --- pods that must join a node of this plan ---


def follower(number: int, key: str = HOSTNAME) -> list[PodFact]:
    terms = term(key, "app In db")
    return [pod(f"f{n}", labels={"app": "f"}, affinity=terms) for n in range(number)]


def test_new_node_grows_up_to_the_largest_type() -> None:
    plan = build_cluster(pool(), pod("db", labels={"app": "db"}, cpu=1.5), *follower(9)).plan()
    assert sizes(plan) == [7] and "affinity" in reasons(plan)[0] and len(plan.unschedulable) == 3


@pytest.mark.parametrize(("limit", "pod_count"), [(8000, 5), (7999, 3), (3000, 1)])
def test_new_node_grows_within_limits(limit: int, pod_count: int) -> None:
    plan = build_cluster(pool(limits={"cpu": limit}), pod("db", labels={"app": "db"}, cpu=1.5), *follower(4)).plan()
    assert sizes(plan) == [pod_count]


def test_new_node_that_grows_keeps_min_values() -> None:
    needed = "node.kubernetes.io/instance-type Exists minValues=2"
    plan = build_cluster(pool("default", needed), pod("db", labels={"app": "db"}, cpu=1.5), *follower(4)).plan()
    assert sizes(plan) == [3] and len(types_of(plan.claims[0])) == 2


# --- limits ---


def test_nodes_without_nodeclaim_count_against_limits() -> None:
    """Reference 2.11 counts every node of the NodePool."""
    existing = node("n", cpu=8, labels={"karpenter.sh/nodepool": "default"}, taints=(taint("full"),))
    plan = build_cluster(pool(limits={"cpu": 9000}), existing, pod("p", cpu=1)).plan()
    assert "limit cpu" in reasons(plan)[0]


@pytest.mark.parametrize("limits", [{"cpu": 0}, {"cpu": 2000}, {"cpu": 4000}, {"memory": 8 << 30}, {"nodes": 1}])
@pytest.mark.parametrize("requests", [(0, 0), (0, 4), (0.001, 4), (1, 0)])
def test_skew_holds_when_nodes_reach_a_limit_that_the_requests_do_not(
    limits: dict[str, int], requests: tuple[float, float]
) -> None:
    """Whole nodes count against a limit, also for pods with small requests or none."""
    cpu, memory = requests
    pools = (pool("open", f"{ZONE} In a b"), pool("limited", f"{ZONE} In c", limits=limits))
    found = by_zone(build_cluster(*pools, *web(10, spreads=spread(), cpu=cpu, memory=memory)).plan())
    counts = [found[zone] for zone in "abc"]
    assert max(counts) - min(counts) <= 1, counts
    assert sum(counts) == 10 or counts[2] == min(counts)
