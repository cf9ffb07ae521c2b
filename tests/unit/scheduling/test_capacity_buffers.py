"""Room for CapacityBuffers in plans: it is bought and counted, and expected and told by nobody."""

from tenure.apis.labels import HOSTNAME
from tenure.model.extra_capacity import LOWEST_PRIORITY, BufferFact, build_virtual_pods
from tenure.model.facts import AffinityTerm, PodFact
from tenure.scheduling.cluster_state import Change
from tests.unit.scheduling.builders import Cluster, expressions, instance_type, node, nodeclaim, pod, pool

INSTANCE_TYPES = (instance_type("m.large", cpu=2, memory=8),)
"""1.9 CPUs are for pods."""


def buffer(name: str = "spare", replicas: int = 3, like: PodFact | None = None) -> BufferFact:
    shape = like or pod("shape", cpu=1)
    return BufferFact(uid=f"uid-{name}", namespace="default", name=name, replicas=replicas, pod=shape)


def add_buffer(cluster: Cluster, fact: BufferFact) -> None:
    cluster.state.apply([Change(kind="buffer", key=fact.uid, fact=fact)])


def test_the_virtual_pods_have_karpenters_names() -> None:
    first, second = build_virtual_pods(buffer(replicas=2))
    assert (first.name, first.uid) == ("capacity-buffer-spare-0", "uid-spare-0")
    assert (second.name, second.uid) == ("capacity-buffer-spare-1", "uid-spare-1")
    assert first.priority == LOWEST_PRIORITY


def test_room_is_bought_and_nobody_is_expected_there() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer())
    plan = cluster.plan()
    assert len(plan.claims) == 3
    assert all(one.pods == () for one in plan.claims)
    assert (plan.nominations, plan.reserved, plan.unschedulable) == ({}, {}, ())


def test_room_that_is_coming_is_not_bought_again() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer())
    bought = cluster.commit(cluster.plan())
    replanned = cluster.plan(after=1)
    assert replanned.claims == ()
    assert set(replanned.reserved.values()) == set(bought)
    assert set(replanned.reserved) == {f"uid-spare-{number}" for number in range(3)}


def test_a_real_pod_takes_the_room_and_more_is_bought() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(replicas=1))
    (bought,) = cluster.commit(cluster.plan())
    cluster.add(pod("real", cpu=1))
    plan = cluster.plan(after=1)
    assert plan.nominations == {"real": bought}
    assert len(plan.claims) == 1
    assert len(plan.nominations) + len(plan.reserved) == 1


def test_what_stands_empty_is_room() -> None:
    ready = node("n1", cpu=2)
    cluster = Cluster(pool(), ready, nodeclaim("c1", on=ready), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(replicas=2))
    plan = cluster.plan()
    assert plan.claims == ()
    assert plan.reserved == {"uid-spare-0": "n1", "uid-spare-1": "n1"}


def test_limits_hold_for_room_too_and_nobody_is_told() -> None:
    cluster = Cluster(pool(limits={"cpu": 4000}), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(replicas=10))
    plan = cluster.plan()
    assert len(plan.claims) == 2
    assert plan.unschedulable == ()


def test_a_selector_that_nothing_satisfies_hurts_no_other() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer("lost", like=pod("shape", selector={"no/where": "x"})))
    add_buffer(cluster, buffer("spare", replicas=1))
    assert len(cluster.plan().claims) == 1


def test_a_buffer_that_goes_or_shrinks_wants_less() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer())
    add_buffer(cluster, buffer(replicas=1))
    assert len(cluster.plan().claims) == 1
    cluster.state.apply([Change(kind="buffer", key="uid-spare", fact=None)])
    assert cluster.plan().claims == ()


def test_another_shape_counts_at_once() -> None:
    cluster = Cluster(pool(), instance_types=(*INSTANCE_TYPES, instance_type("m.2xlarge", cpu=8, memory=32)))
    add_buffer(cluster, buffer(replicas=1))
    assert cluster.plan().claims[0].requests["cpu"] == 1000
    add_buffer(cluster, buffer(replicas=1, like=pod("shape", cpu=5)))
    assert cluster.plan().claims[0].requests["cpu"] == 5000


def test_pods_that_keep_apart_get_a_node_each() -> None:
    anti_affinity = AffinityTerm(key=HOSTNAME, selector=expressions("app In web"))
    shape = pod("shape", cpu=0.1, labels={"app": "web"}, anti_affinity=(anti_affinity,))
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(like=shape))
    assert len(cluster.plan().claims) == 3


def test_real_pods_come_first_where_there_is_not_room_for_all() -> None:
    cluster = Cluster(pool(limits={"cpu": 2000}), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(replicas=1, like=pod("shape", cpu=1.5)))
    cluster.add(pod("real", cpu=0.5, age=-100))
    (bought,) = cluster.plan().claims
    assert bought.pods == ("real",)
