"""Static NodePools in plans: no new nodes for pods, but their existing nodes take pods."""

from tenure.apis.labels import INITIALIZED, NODEPOOL, REGISTERED
from tests.unit.scheduling.builders import Cluster, node, nodeclaim, pod, pool, reasons


def test_static_nodepool_launches_no_node_for_pods() -> None:
    static, dynamic = pool("static", static=True, replicas=2), pool("dynamic")
    plan = Cluster(static, dynamic, pod("a"), pod("b", selector={NODEPOOL: "static"})).plan()
    assert [one.pool for one in plan.claims] == ["dynamic"]
    assert [one.name for one in plan.unschedulable] == ["b"]


def test_only_static_nodepools_are_the_reason() -> None:
    plan = Cluster(pool("static", static=True), pod()).plan()
    assert not plan.claims
    assert reasons(plan) == ["pool static: it is static and launches no nodes for pods"]


def test_node_of_a_static_nodepool_takes_pods() -> None:
    existing = node("n", labels={NODEPOOL: "static", REGISTERED: "true", INITIALIZED: "true"})
    owner = nodeclaim("c", of="static", on=existing)
    plan = Cluster(pool("static", static=True), pool("dynamic"), existing, owner, pod("p")).plan()
    assert plan.nominations == {"p": "n"} and not plan.claims
