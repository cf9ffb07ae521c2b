"""DaemonSets on new nodes and on nodes that await their pods: node affinity and host ports."""

import pytest

from tenure.apis.labels import HOSTNAME, NODE_NAME_FIELD, ZONE
from tenure.model.facts import DaemonSetFact, Expression, HostPort
from tenure.scheduling.cluster_state import Change
from tests.unit.scheduling.builders import (
    COMMON,
    Cluster,
    daemonset,
    expressions,
    launched_nodeclaim,
    node,
    pod,
    pool,
    reasons,
)
from tests.unit.scheduling.disruption.cluster_builder import Fleet

PORT = (HostPort(port=8080),)
AGENT = daemonset("agent", pod("template", cpu=0.1, daemonset=True, host_ports=PORT))
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
