"""Static pools in planning: no new node for pods, and room on the nodes that they have."""

from tenure.apis.labels import INITIALIZED, NODEPOOL, REGISTERED
from tests.unit.scheduling.builders import Cluster, node, nodeclaim, pod, pool, reasons


def test_no_node_is_bought_from_a_static_pool_also_when_a_pod_asks_for_it() -> None:
    static, dynamic = pool("static", static=True, replicas=2), pool("dynamic")
    plan = Cluster(static, dynamic, pod("a"), pod("b", selector={NODEPOOL: "static"})).plan()
    assert [one.pool for one in plan.claims] == ["dynamic"]
    assert [one.name for one in plan.unschedulable] == ["b"]


def test_with_static_pools_alone_pods_are_told_that_nothing_can_be_bought() -> None:
    plan = Cluster(pool("static", static=True), pod()).plan()
    assert not plan.claims and "no NodePool is ready" in reasons(plan)[0]


def test_a_node_of_a_static_pool_takes_pods() -> None:
    existing = node("n", labels={NODEPOOL: "static", REGISTERED: "true", INITIALIZED: "true"})
    owner = nodeclaim("c", of="static", on=existing)
    plan = Cluster(pool("static", static=True), pool("dynamic"), existing, owner, pod("p")).plan()
    assert plan.nominations == {"p": "n"} and not plan.claims
