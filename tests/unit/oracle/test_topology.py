"""The validator reports plans that break spread, affinity, anti-affinity and host ports."""

from dataclasses import replace
from typing import Any

import pytest

from tenure.apis.labels import ZONE
from tenure.model.facts import AffinityTerm, HostPort, PodFact, SpreadConstraint
from tests.oracle.topology import Spot, topology_violations
from tests.unit.scheduling.builders import expressions, pod

WEB: dict[str, Any] = {"labels": {"app": "web"}}
NAMESPACES: dict[str, dict[str, str]] = {"default": {}, "shop": {"team": "shop"}, "bank": {"team": "bank"}}


def spot(zone: str, *pods: PodFact, running: tuple[PodFact, ...] = ()) -> Spot:
    """A node with planned and with running pods."""
    name = f"node-{zone}-{len(pods)}-{len(running)}"
    planned = frozenset(one.uid for one in pods)
    return Spot(name, {ZONE: frozenset({zone})}, (), (*pods, *running), planned)


def with_labels(one: Spot, **labels: str) -> Spot:
    """The node with these labels; an empty value removes the label."""
    changed = {**one.labels, **{key: frozenset({value}) for key, value in labels.items()}}
    return replace(one, labels={key: values for key, values in changed.items() if values != frozenset({""})})


def term(**more: Any) -> tuple[AffinityTerm, ...]:
    return (AffinityTerm.model_validate({"key": ZONE, "selector": expressions("app In web"), **more}),)


def spread(**more: Any) -> tuple[SpreadConstraint, ...]:
    return (
        SpreadConstraint.model_validate({"key": ZONE, "max_skew": 1, "selector": expressions("app In web"), **more}),
    )


def find_topology_violations(*spots: Spot) -> list[str]:
    return list(topology_violations(spots, NAMESPACES, lambda *_: True, lambda *_: True))


@pytest.mark.parametrize(
    ("where", "inside"),
    [
        ({}, {"default"}),
        ({"namespaces": ("shop",)}, {"shop"}),
        ({"namespace_selector": ()}, {"default", "shop", "bank"}),
        ({"namespace_selector": expressions("team In bank")}, {"bank"}),
        ({"namespace_selector": expressions("team In bank"), "namespaces": ("shop",)}, {"bank", "shop"}),
    ],
)
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_anti_affinity_applies_in_selected_namespaces(where: dict[str, Any], inside: set[str], namespace: str) -> None:
    with_anti_affinity, other = pod(anti_affinity=term(**where)), pod(namespace=namespace, **WEB)
    assert bool(find_topology_violations(spot("a", with_anti_affinity, other))) == (namespace in inside)
    assert find_topology_violations(spot("a", with_anti_affinity), spot("b", other)) == []


def test_anti_affinity_of_running_pod_applies_to_planned_pods() -> None:
    running, other = pod(node="n", anti_affinity=term()), pod(**WEB)
    assert find_topology_violations(spot("a", other, running=(running,)))
    assert find_topology_violations(spot("a", running=(running, other))) == [], "the plan moved neither"


def test_preferred_term_is_no_violation() -> None:
    assert find_topology_violations(spot("a", pod(anti_affinity=term(weight=1)), pod(**WEB))) == []
    assert find_topology_violations(spot("a", pod(affinity=term(weight=1)))) == []


def test_affinity_needs_a_pod_in_the_same_zone() -> None:
    follower = pod(affinity=term())
    assert find_topology_violations(spot("a", follower), spot("b", running=(pod(**WEB),)))
    assert find_topology_violations(spot("a", follower, running=(pod(**WEB),))) == []


def test_first_pods_with_mutual_affinity_may_start_anywhere() -> None:
    first = [pod(affinity=term(), **WEB) for _ in range(2)]
    assert find_topology_violations(spot("a", *first)) == []
    assert find_topology_violations(spot("a", *first), spot("b", running=(pod(**WEB),)))


def test_affinity_terms_must_select_one_and_the_same_pod() -> None:
    follower = pod(affinity=term() + term(selector=expressions("tier In front")))
    separate = (pod(**WEB), pod(labels={"tier": "front"}))
    assert find_topology_violations(spot("a", follower, running=separate))
    both = pod(labels={"app": "web", "tier": "front"})
    assert find_topology_violations(spot("a", follower, running=(both,))) == []
    assert find_topology_violations(spot("a", follower), spot("b", running=(both,)))


def test_affinity_terms_count_pods_in_the_namespaces_of_all_terms() -> None:
    follower = pod(affinity=term(namespaces=("shop", "bank")) + term(namespace_selector=expressions("team In bank")))
    for namespace in NAMESPACES:
        found = find_topology_violations(spot("a", follower, running=(pod(namespace=namespace, **WEB),)))
        assert bool(found) == (namespace != "bank")


def test_pod_is_not_the_first_if_a_pod_counts_for_another_key() -> None:
    first = pod(affinity=term() + term(key="rack"), **WEB)
    running = spot("a", running=(pod(**WEB),))
    assert find_topology_violations(with_labels(spot("a", first), rack="r1")) == []
    assert find_topology_violations(with_labels(spot("a", first), rack="r1"), running)
    assert find_topology_violations(spot("a", first)), "the node has no rack"


def test_first_pod_ignores_pods_on_nodes_without_the_key() -> None:
    elsewhere = with_labels(spot("b", running=(pod(**WEB),)), **{ZONE: ""})
    assert find_topology_violations(spot("a", pod(affinity=term(), **WEB)), elsewhere) == []


def test_anti_affinity_ignores_nodes_without_the_key() -> None:
    limited = [pod(anti_affinity=term(key="rack"), **WEB) for _ in range(2)]
    assert find_topology_violations(spot("a", *limited)) == []
    assert find_topology_violations(with_labels(spot("a", *limited), rack="r1"))


def test_spread_ignores_nodes_that_lack_the_key_of_another_hard_constraint() -> None:
    both, running = spread() + spread(key="rack"), (pod(**WEB), pod(**WEB))
    new = with_labels(spot("a", pod(spreads=both, **WEB)), rack="r1")
    assert find_topology_violations(new, spot("a", running=running), spot("b")) == []
    assert find_topology_violations(new, with_labels(spot("b"), rack="r1"), spot("a", running=running)) == []
    counted = with_labels(spot("a", running=running), rack="r1")
    assert find_topology_violations(new, counted, with_labels(spot("b"), rack="r2"))
    soft = spread() + spread(key="rack", hard=False)
    assert find_topology_violations(spot("a", pod(spreads=soft, **WEB), running=running), spot("b"))


def test_nodes_that_lack_the_key_of_another_constraint_are_no_domain_for_min_domains() -> None:
    both, elsewhere = spread(min_domains=2) + spread(key="rack", max_skew=9), spot("b", running=(pod(**WEB),))
    new = with_labels(spot("a", *(pod(spreads=both, **WEB) for _ in range(2))), rack="r1")
    assert find_topology_violations(new, elsewhere)
    assert find_topology_violations(new, with_labels(elsewhere, rack="r1")) == []


def test_spread_with_an_empty_selector_counts_no_pods() -> None:
    limited = [pod(spreads=spread(selector=()), **WEB) for _ in range(3)]
    assert find_topology_violations(spot("a", *limited), spot("b")) == []


def test_terminating_pods_are_not_counted() -> None:
    terminating = (pod(deleting=True, anti_affinity=term(), **WEB),) * 2
    limited = pod(spreads=spread(), anti_affinity=term(), **WEB)
    assert find_topology_violations(spot("a", limited, running=terminating), spot("b")) == []
    assert find_topology_violations(spot("a", pod(affinity=term()), running=terminating))


@pytest.mark.parametrize(
    ("zones", "constraint", "is_violation"),
    [
        ({"a": 1, "b": 1}, {}, False),
        ({"a": 2, "b": 1}, {}, False),
        ({"a": 2, "b": 0}, {}, True),
        ({"a": 3, "b": 1}, {"max_skew": 2}, False),
        ({"a": 1, "b": 1}, {"min_domains": 3}, False),
        ({"a": 2, "b": 2}, {"min_domains": 3}, True),
        ({"a": 2, "b": 0}, {"hard": False}, False),
        ({"a": 2, "b": 0}, {"selector": expressions("app In db")}, False),
    ],
)
def test_spread_limits_skew_between_zones(
    zones: dict[str, int], constraint: dict[str, Any], is_violation: bool
) -> None:
    pods = {zone: [pod(spreads=spread(**constraint), **WEB) for _ in range(count)] for zone, count in zones.items()}
    assert bool(find_topology_violations(*(spot(zone, *members) for zone, members in pods.items()))) == is_violation


def test_spread_limits_skew_of_running_pods_for_a_pod_that_it_does_not_count() -> None:
    follower, web, empty = pod(spreads=spread()), pod(spreads=spread(), **WEB), spot("b")
    running = (pod(**WEB), pod(**WEB))
    assert find_topology_violations(spot("a", follower, running=running), empty)
    assert find_topology_violations(spot("a", follower, running=running[:1]), empty) == []
    assert find_topology_violations(spot("a", follower, web, running=running[:1]), empty) == [
        f"{web.name} in {ZONE} a: 2 there, 0 elsewhere"
    ], "the other pod may be bound first"


@pytest.mark.parametrize(
    ("one", "other", "is_violation"),
    [
        (HostPort(port=80), HostPort(port=80), True),
        (HostPort(port=80), HostPort(port=81), False),
        (HostPort(port=80), HostPort(port=80, protocol="UDP"), False),
        (HostPort(port=80), HostPort(port=80, address="10.0.0.1"), True),
        (HostPort(port=80, address="10.0.0.2"), HostPort(port=80, address="10.0.0.1"), False),
        (HostPort(port=80, address="10.0.0.1"), HostPort(port=80, address="10.0.0.1"), True),
    ],
)
def test_pods_of_a_node_need_different_host_ports(one: HostPort, other: HostPort, is_violation: bool) -> None:
    pods = pod(host_ports=(one,)), pod(host_ports=(other,))
    assert bool(find_topology_violations(spot("a", *pods))) == is_violation
    assert find_topology_violations(spot("a", pods[0]), spot("b", pods[1])) == []
    assert find_topology_violations(spot("a", running=pods)) == [], "the plan moved neither"
