"""DaemonSets on new nodes and on nodes that await their pods: node affinity and host ports."""

from collections import Counter
from typing import Any

import pytest

from tenure.apis.labels import HOSTNAME, INSTANCE_TYPE, NODE_NAME_FIELD, ZONE
from tenure.model.facts import AffinityTerm, DaemonSetFact, Expression, HostPort, SpreadConstraint
from tenure.scheduling.cluster_state import Change
from tests.unit.scheduling.builders import (
    COMMON,
    Cluster,
    daemonset,
    expressions,
    instance_type,
    launched_nodeclaim,
    node,
    pod,
    pool,
    reasons,
    taint,
    toleration,
    values_of,
)
from tests.unit.scheduling.disruption.cluster_builder import Fleet

PORT = (HostPort(port=8080),)
AGENT = daemonset("agent", pod("template", cpu=0.1, daemonset=True, host_ports=PORT))
LARGE = instance_type("m.2xlarge", cpu=8, memory=32, price=0.4, zones=("a", "b"))
RED = expressions("team In red")
ELSEWHERE = expressions("team In red")
HERE = expressions(f"{ZONE} In a")


def by_name(operator: str, name: str = "gone") -> tuple[Expression, ...]:
    return (Expression(key=NODE_NAME_FIELD, operator=operator, values=(name,)),)


@pytest.mark.parametrize(
    ("terms", "counts"),
    [
        ((ELSEWHERE,), False),
        ((ELSEWHERE, HERE), True),
        ((HERE, ELSEWHERE), True),
        ((ELSEWHERE, ELSEWHERE, HERE), True),
        ((ELSEWHERE, expressions(f"{HOSTNAME} In gone")), False),
        ((by_name("In"),), False),
        ((by_name("NotIn"),), True),
        ((by_name("In"), HERE), True),
        ((by_name("NotIn") + ELSEWHERE,), False),
        (((), HERE), True),
        (((), ELSEWHERE), False),
    ],
)
def test_daemonset_counts_where_one_of_its_terms_matches(
    terms: tuple[tuple[Expression, ...], ...], counts: bool
) -> None:
    """On new nodes, and on existing nodes that await its pod. The requests are those of a live pod elsewhere."""
    agent = daemonset("agent", pod("template", cpu=0.1, daemonset=True, terms=terms))
    live = pod("live", cpu=2, node="other", daemonset=True, owner_uid=agent.uid)
    facts = (pool("default", f"{ZONE} In a"), node("other", cpu=2), agent, live, pod("p", cpu=1))
    [planned] = Cluster(*facts).plan().claims
    assert planned.requests["cpu"] == (3000 if counts else 1000)
    full = Cluster(*facts, node("n", cpu=2)).plan()
    assert full.nominations == ({} if counts else {"p": "n"})


def test_node_that_awaits_a_daemonset_pod_has_its_host_port_taken() -> None:
    cluster = Cluster(AGENT, node("n"), pod("web", host_ports=PORT), pod("other", host_ports=(HostPort(port=80),)))
    assert cluster.plan().nominations == {"other": "n"}
    cluster.add(pod("agent-1", node="n", daemonset=True, owner_uid=AGENT.uid))
    assert cluster.plan().nominations == {"other": "n", "web": "n"}


def test_launched_nodeclaim_that_awaits_a_daemonset_pod_has_its_host_port_taken() -> None:
    [planned] = Cluster(pool(), AGENT, pod("first")).plan().claims
    cluster = Cluster(pool(), AGENT, launched_nodeclaim("c", planned, COMMON[2]), pod("web", host_ports=PORT))
    assert not cluster.plan().nominations and "8080 is taken by a DaemonSet" in reasons(cluster.plan())[0]
    cluster.add(pod("plain"))
    assert cluster.plan().nominations == {"plain": "c"}


def cluster_with_unlaunched_nodeclaim(agent: DaemonSetFact) -> Cluster:
    """Its NodeClaim has room for one pod, since the pod of its plan is gone."""
    cluster = Cluster(pool(), agent, pod("first"))
    cluster.commit(cluster.plan())
    cluster.state.apply([Change(kind="pod", key="first", fact=None)])
    return cluster


def test_unlaunched_nodeclaim_has_the_host_port_of_its_daemonset_taken() -> None:
    cluster = cluster_with_unlaunched_nodeclaim(AGENT)
    cluster.add(pod("web", host_ports=PORT))
    later = cluster.plan(after=1)
    assert not later.nominations and "8080 is taken by a DaemonSet" in reasons(later)[0]
    cluster.add(pod("other", host_ports=(HostPort(port=80),)))
    assert set(cluster.plan(after=1).nominations) == {"other"}


def test_unlaunched_nodeclaim_without_the_daemonset_takes_a_pod_with_its_host_port() -> None:
    elsewhere = daemonset("agent", pod("template", daemonset=True, host_ports=PORT, terms=(ELSEWHERE,)))
    cluster = cluster_with_unlaunched_nodeclaim(elsewhere)
    cluster.add(pod("web", host_ports=PORT))
    assert set(cluster.plan(after=1).nominations) == {"web"}


def test_pods_do_not_move_to_a_node_whose_awaited_daemonset_pod_has_their_host_port() -> None:
    fleet = Fleet(facts=(AGENT,)).node("free", "m.2xlarge", pod(cpu=4)).node("n", "m.large", pod(host_ports=PORT))
    assert not [one for one in fleet.decide().commands if "n" in one.node_names]
    fleet = Fleet().node("free", "m.2xlarge", pod(cpu=4)).node("n", "m.large", pod(host_ports=PORT))
    assert [one.node_names for one in fleet.decide().commands] == [("n",)]


LABELED = daemonset("agent", pod("agent", cpu=0.1, daemonset=True, labels={"app": "agent"}))
NEAR_AGENT = (AffinityTerm(key=HOSTNAME, selector=expressions("app In agent")),)
WEB = {"app": "web"}
NEAR_WEB = (AffinityTerm(key=HOSTNAME, selector=expressions("app In web")),)


def test_pod_with_affinity_to_a_daemonset_gets_a_node_that_runs_it() -> None:
    on_b = daemonset(
        "agent", pod("agent", cpu=0.1, daemonset=True, labels={"app": "agent"}, terms=(expressions(f"{ZONE} In b"),))
    )
    assert not Cluster(pool("a", f"{ZONE} In a"), on_b, pod("p", affinity=NEAR_AGENT)).plan().claims
    plan = Cluster(pool("a", f"{ZONE} In a"), pool("b", f"{ZONE} In b"), on_b, pod("p", affinity=NEAR_AGENT)).plan()
    assert [one.pool for one in plan.claims] == ["b"]


def test_pods_with_affinity_to_a_daemonset_need_no_common_node() -> None:
    plan = Cluster(pool(), LABELED, *(pod(cpu=5, affinity=NEAR_AGENT) for _ in range(3))).plan()
    assert sum(len(one.pods) for one in plan.claims) == 3


@pytest.mark.parametrize(
    ("agent", "excluded"),
    [
        (LABELED, {"anti_affinity": NEAR_AGENT}),
        (daemonset("agent", pod("agent", cpu=0.1, daemonset=True, anti_affinity=NEAR_WEB)), {"labels": WEB}),
    ],
)
def test_no_node_is_launched_for_a_pod_whose_anti_affinity_excludes_its_daemonset_pod(
    agent: DaemonSetFact, excluded: dict[str, Any]
) -> None:
    plan = Cluster(pool(), agent, pod("p", **excluded), pod("other")).plan()
    assert [one.pods for one in plan.claims] == [("other",)] and "DaemonSet pods" in reasons(plan)[0]
    waiting = Cluster(agent, node("n"), pod("p", **excluded), pod("other"))
    assert waiting.plan().nominations == {"other": "n"}
    elsewhere = agent.model_copy(update={"pod": agent.pod.model_copy(update={"required_terms": (ELSEWHERE,)})})
    assert Cluster(pool(), elsewhere, pod("p", **excluded)).plan().claims


def test_node_that_awaits_a_daemonset_pod_takes_pods_with_affinity_to_it() -> None:
    assert Cluster(LABELED, node("n"), pod("p", affinity=NEAR_AGENT)).plan().nominations == {"p": "n"}
    cluster = cluster_with_unlaunched_nodeclaim(LABELED)
    cluster.add(pod("p", affinity=NEAR_AGENT))
    assert set(cluster.plan(after=1).nominations) == {"p"}


def test_pods_do_not_move_to_a_node_whose_awaited_daemonset_pod_excludes_them() -> None:
    agent = daemonset("agent", pod("agent", cpu=0.1, daemonset=True, anti_affinity=NEAR_WEB))
    for labels, moves in ((WEB, False), ({}, True)):
        fleet = Fleet(facts=(agent,)).node("free", "m.2xlarge", pod(cpu=4)).node("n", "m.large", pod(labels=labels))
        assert any("n" in one.node_names for one in fleet.decide().commands) is moves


def near_agent(key: str) -> tuple[AffinityTerm, ...]:
    return (AffinityTerm(key=key, selector=expressions("app In agent")),)


def spread_with_agent(key: str, max_skew: int = 1, **more: Any) -> dict[str, Any]:
    """Pods of an application whose spread constraint counts the DaemonSet pods, too."""
    selector = expressions("app In web agent")
    constraint = SpreadConstraint.model_validate({"key": key, "max_skew": max_skew, "selector": selector, **more})
    return {"labels": WEB, "spreads": (constraint,)}


def test_pod_with_zone_affinity_to_a_daemonset_gets_the_first_node_of_a_zone() -> None:
    plan = Cluster(pool(), LABELED, *(pod(cpu=5, affinity=near_agent(ZONE)) for _ in range(3))).plan()
    assert sum(len(one.pods) for one in plan.claims) == 3
    assert len({values_of(one, ZONE) for one in plan.claims}) == 1
    elsewhere = LABELED.model_copy(update={"pod": LABELED.pod.model_copy(update={"required_terms": (ELSEWHERE,)})})
    assert not Cluster(pool(), elsewhere, pod(affinity=near_agent(ZONE))).plan().claims


def test_pod_with_zone_affinity_to_a_daemonset_joins_no_node_of_a_zone_without_it() -> None:
    tainted = node("n", cpu=16, taints=(taint("team", "red"),))
    agent = LABELED.model_copy(update={"pod": LABELED.pod.model_copy(update={"tolerations": ()})})
    lonely = pod("p", affinity=near_agent(ZONE), tolerations=(toleration(),))
    assert not Cluster(agent, tainted, lonely).plan().nominations
    plan = Cluster(pool(), agent, tainted, lonely, pod("q", cpu=9, tolerations=(toleration(),))).plan()
    assert [one.pods for one in plan.claims] == [("p",)] and plan.nominations == {"q": "n"}


def test_pods_spread_by_hostname_count_the_daemonset_pods_of_new_nodes() -> None:
    plan = Cluster(pool(), LABELED, *(pod(**spread_with_agent(HOSTNAME)) for _ in range(3))).plan()
    assert [len(one.pods) for one in plan.claims] == [1, 1, 1]


def test_hostname_spread_counts_daemonset_pods_beyond_those_of_the_emptiest_node() -> None:
    """One DaemonSet runs only on new nodes of pool b."""
    on_b = daemonset("agent", pod("agent", cpu=0.1, daemonset=True, labels={"app": "agent"}, terms=(RED,)))
    empty, pods = node("n", cpu=1), [pod(cpu=2, **spread_with_agent(HOSTNAME)) for _ in range(2)]
    red = pool("b", template_labels={"team": "red"})
    assert not Cluster(empty, red, on_b, *pods).plan().claims
    assert len(Cluster(red, on_b, *pods).plan().claims) == 2
    plan = Cluster(empty, pool("a"), red, on_b, *pods).plan()
    assert [one.pool for one in plan.claims] == ["a", "a"]
    wide = [pod(cpu=2, **spread_with_agent(HOSTNAME, 2)) for _ in range(2)]
    assert [len(one.pods) for one in Cluster(empty, red, on_b, *wide).plan().claims] == [1, 1]


def test_hostname_spread_counts_awaited_daemonset_pods() -> None:
    """Node `other` gets no DaemonSet pod."""
    on_red = daemonset("agent", pod("agent", cpu=0.1, daemonset=True, labels={"app": "agent"}, terms=(RED,)))
    red, other = node("red", labels={"team": "red"}), node("other", cpu=1)
    pods = [pod("p", cpu=2, **spread_with_agent(HOSTNAME))]
    assert not Cluster(on_red, red, other, *pods).plan().nominations
    assert Cluster(on_red, red, *pods).plan().nominations == {"p": "red"}


@pytest.mark.parametrize(
    "blocking",
    [
        {"host_ports": PORT},
        {"anti_affinity": near_agent(HOSTNAME)},
        {"anti_affinity": near_agent(ZONE)},
    ],
    ids=["host port", "anti-affinity by hostname", "anti-affinity by zone"],
)
def test_hostname_spread_counts_no_awaited_daemonset_pod_that_a_running_pod_excludes(blocking: dict[str, Any]) -> None:
    agent = daemonset("agent", pod("agent", cpu=0.1, daemonset=True, labels={"app": "agent"}, host_ports=PORT))
    nodes, spread_pod = [node(name, labels={ZONE: name}) for name in "ab"], pod("p", **spread_with_agent(HOSTNAME))
    assert Cluster(agent, *nodes, spread_pod).plan().nominations == {"p": "a"}
    assert Cluster(agent, *nodes, pod("r", node="b", **blocking), spread_pod).plan().nominations == {"p": "b"}


def test_pods_spread_by_zone_count_the_daemonset_pods_of_each_new_node() -> None:
    """Each pod needs a node, so each adds two pods to its zone."""
    zones = f"{ZONE} In a b"
    for count, scheduled in ((1, 1), (2, 2), (3, 2), (4, 4)):
        pods = [pod(cpu=7, **spread_with_agent(ZONE)) for _ in range(count)]
        plan = Cluster(pool("default", zones), LABELED, *pods, instance_types=(LARGE,)).plan()
        assert sum(len(one.pods) for one in plan.claims) == scheduled
        assert all(len(one.pods) == 1 for one in plan.claims)
        by_zone = Counter(values_of(one, ZONE) for one in plan.claims)
        assert max(by_zone.values()) - min(by_zone.values()) == 0


@pytest.mark.parametrize("priority", [0, 1], ids=["lower priority", "higher priority"])
def test_pods_spread_by_zone_count_the_daemonset_pods_of_nodes_for_others(priority: int) -> None:
    """Each node for another pod adds a DaemonSet pod to its zone, which the plan therefore fixes."""
    others = [pod(f"other-{number}", cpu=7) for number in range(3)]
    limited = [pod(f"p{number}", cpu=1, priority=priority, **spread_with_agent(ZONE)) for number in range(4)]
    cluster = Cluster(pool("default", f"{ZONE} In a b"), LABELED, *others, *limited, instance_types=(LARGE,))
    plan = cluster.plan()
    assert sum(len(one.pods) for one in plan.claims) == 7
    counts = Counter[str]()
    for claim in plan.claims:
        (zone,) = values_of(claim, ZONE)
        counts[zone] += 1 + sum(name.startswith("p") for name in claim.pods)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_min_domains_counts_only_zones_with_nodes() -> None:
    """Each node awaits a DaemonSet pod. Before zone c has a node, kube-scheduler allows two pods per zone."""
    nodes = [node(zone, labels={ZONE: zone}) for zone in ("a", "b")]
    pods = [pod(f"p{number}", **spread_with_agent(ZONE, max_skew=2, min_domains=3)) for number in range(3)]
    plan = Cluster(pool(), LABELED, *nodes, *pods).plan()
    assert sorted(plan.nominations.values()) == ["a", "b"]
    assert [values_of(one, ZONE) for one in plan.claims] == [("c",)]


def test_nodes_for_others_have_types_with_the_counted_daemonset_pods() -> None:
    on_large = expressions(f"{INSTANCE_TYPE} In {LARGE.name}")
    agent = LABELED.model_copy(update={"pod": LABELED.pod.model_copy(update={"required_terms": (on_large,)})})
    cheap = instance_type("c.2xlarge", cpu=8, memory=32, price=0.3, zones=("a", "b"))
    spread = pod("p", cpu=1, **spread_with_agent(ZONE))
    for pods, expected in (([], {cheap.name, LARGE.name}), ([spread], {cheap.name})):
        plan = Cluster(pool(), agent, pod("other", cpu=7), *pods, instance_types=(LARGE, cheap)).plan()
        (claim,) = [one for one in plan.claims if "other" in one.pods]
        assert set(values_of(claim, INSTANCE_TYPE)) == expected


def test_pods_spread_by_zone_count_awaited_daemonset_pods() -> None:
    """Zone a awaits two DaemonSet pods, zone b one."""
    nodes = [node(f"{zone}{number}", labels={ZONE: zone}) for zone, number in ("a1", "a2", "b1")]
    pods = [pod(f"p{number}", **spread_with_agent(ZONE)) for number in range(4)]
    nominated = Counter(name[0] for name in Cluster(LABELED, *nodes, *pods).plan().nominations.values())
    assert nominated == {"a": 2, "b": 2} or nominated == {"b": 3, "a": 1}
    [first] = Cluster(LABELED, *nodes, pods[0]).plan().nominations.values()
    assert first == "b1"


def test_pod_does_not_fix_the_zone_of_a_new_node_whose_daemonset_pod_its_anti_affinity_excludes() -> None:
    agent = LABELED.model_copy(update={"pod": LABELED.pod.model_copy(update={"required_terms": (RED,)})})
    pools = pool("plain", weight=1), pool("red", template_labels={"team": "red"})
    first = pod("first", cpu=1, priority=5, selector={"team": "red"})
    excluded = pod("p", cpu=0.5, anti_affinity=near_agent(ZONE))
    plan = Cluster(*pools, agent, first, excluded).plan()
    assert sorted((one.pool, one.pods) for one in plan.claims) == [("plain", ("p",)), ("red", ("first",))]


def test_first_pods_that_select_themselves_get_nodes_with_a_selected_daemonset_pod() -> None:
    """Its pods on nodes for others would be the first."""
    on_large = expressions(f"{INSTANCE_TYPE} In {LARGE.name}")
    agent = LABELED.model_copy(update={"pod": LABELED.pod.model_copy(update={"required_terms": (on_large,)})})
    cheap = instance_type("c.2xlarge", cpu=8, memory=16, price=0.3)
    pods = [pod(cpu=5, labels={"app": "agent"}, affinity=NEAR_AGENT) for _ in range(3)]
    plan = Cluster(pool(), agent, *pods, instance_types=(LARGE, cheap)).plan()
    assert [values_of(one, INSTANCE_TYPE) for one in plan.claims] == [(LARGE.name,)] * 3


@pytest.mark.parametrize(("existing", "scheduled"), [(0, 1), (2, 3)], ids=["new nodes", "existing nodes"])
def test_pods_that_select_themselves_share_a_node_if_no_node_gets_the_daemonset(existing: int, scheduled: int) -> None:
    agent = LABELED.model_copy(update={"pod": LABELED.pod.model_copy(update={"required_terms": (RED,)})})
    nodes = [node(f"n{number}", cpu=16) for number in range(existing)]
    pods = [pod(cpu=5, labels={"app": "agent"}, affinity=NEAR_AGENT) for _ in range(4)]
    plan = Cluster(pool(), agent, *nodes, *pods).plan()
    targets = [*plan.nominations.values(), *(number for number, one in enumerate(plan.claims) for _ in one.pods)]
    assert (len(targets), len(set(targets))) == (scheduled, 1)


def test_nodeclaim_allows_no_type_whose_daemonset_pod_an_anti_affinity_excludes() -> None:
    on_large = expressions(f"{INSTANCE_TYPE} In {LARGE.name}")
    agent = LABELED.model_copy(update={"pod": LABELED.pod.model_copy(update={"required_terms": (on_large,)})})
    cheap = instance_type("c.2xlarge", cpu=8, memory=16, price=0.3)
    for types, terms in (((cheap.name,), NEAR_AGENT), ((cheap.name, LARGE.name), ())):
        plan = Cluster(pool(), agent, pod(cpu=5, anti_affinity=terms), instance_types=(LARGE, cheap)).plan()
        assert [values_of(one, INSTANCE_TYPE) for one in plan.claims] == [types]
