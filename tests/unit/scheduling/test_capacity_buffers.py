"""Capacity for CapacityBuffers in plans: it is launched and counted, without nominations and events."""

from tenure.apis.labels import HOSTNAME
from tenure.model.extra_capacity import LOWEST_PRIORITY, BufferFact, build_virtual_pods
from tenure.model.facts import AffinityTerm, PodFact
from tenure.scheduling.cluster_state import Change
from tests.unit.scheduling.builders import Cluster, expressions, instance_type, node, nodeclaim, pod, pool

INSTANCE_TYPES = (instance_type("m.large", cpu=2, memory=8),)
"""1.9 CPUs are allocatable."""


def buffer(name: str = "spare", replicas: int = 3, like: PodFact | None = None) -> BufferFact:
    shape = like or pod("shape", cpu=1)
    return BufferFact(uid=f"uid-{name}", namespace="default", name=name, replicas=replicas, pod=shape)


def add_buffer(cluster: Cluster, fact: BufferFact) -> None:
    cluster.state.apply([Change(kind="buffer", key=fact.uid, fact=fact)])


def test_virtual_pods_have_karpenters_names() -> None:
    first, second = build_virtual_pods(buffer(replicas=2))
    assert (first.name, first.uid) == ("capacity-buffer-spare-0", "uid-spare-0")
    assert (second.name, second.uid) == ("capacity-buffer-spare-1", "uid-spare-1")
    assert first.priority == LOWEST_PRIORITY


def test_buffer_capacity_is_launched_without_nominations() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer())
    plan = cluster.plan()
    assert len(plan.claims) == 3
    assert all(one.pods == () for one in plan.claims)
    assert (plan.nominations, plan.reserved, plan.unschedulable) == ({}, {}, ())


def test_launching_buffer_capacity_is_not_launched_again() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer())
    created = cluster.commit(cluster.plan())
    replanned = cluster.plan(after=1)
    assert replanned.claims == ()
    assert set(replanned.reserved.values()) == set(created)
    assert set(replanned.reserved) == {f"uid-spare-{number}" for number in range(3)}


def test_pod_uses_the_buffer_capacity_which_is_replenished() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(replicas=1))
    (created,) = cluster.commit(cluster.plan())
    cluster.add(pod("real", cpu=1))
    plan = cluster.plan(after=1)
    assert plan.nominations == {"real": created}
    assert len(plan.claims) == 1
    assert len(plan.nominations) + len(plan.reserved) == 1


def test_empty_node_is_buffer_capacity() -> None:
    ready = node("n1", cpu=2)
    cluster = Cluster(pool(), ready, nodeclaim("c1", on=ready), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(replicas=2))
    plan = cluster.plan()
    assert plan.claims == ()
    assert plan.reserved == {"uid-spare-0": "n1", "uid-spare-1": "n1"}


def test_limits_apply_to_buffers_without_unschedulable_pods() -> None:
    cluster = Cluster(pool(limits={"cpu": 4000}), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(replicas=10))
    plan = cluster.plan()
    assert len(plan.claims) == 2
    assert plan.unschedulable == ()


def test_unsatisfiable_buffer_does_not_affect_others() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer("lost", like=pod("shape", selector={"no/where": "x"})))
    add_buffer(cluster, buffer("spare", replicas=1))
    assert len(cluster.plan().claims) == 1


def test_deleted_or_reduced_buffer_needs_less_capacity() -> None:
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer())
    add_buffer(cluster, buffer(replicas=1))
    assert len(cluster.plan().claims) == 1
    cluster.state.apply([Change(kind="buffer", key="uid-spare", fact=None)])
    assert cluster.plan().claims == ()


def test_changed_pod_template_applies_at_once() -> None:
    cluster = Cluster(pool(), instance_types=(*INSTANCE_TYPES, instance_type("m.2xlarge", cpu=8, memory=32)))
    add_buffer(cluster, buffer(replicas=1))
    assert cluster.plan().claims[0].requests["cpu"] == 1000
    add_buffer(cluster, buffer(replicas=1, like=pod("shape", cpu=5)))
    assert cluster.plan().claims[0].requests["cpu"] == 5000


def test_virtual_pods_with_anti_affinity_have_a_node_each() -> None:
    anti_affinity = AffinityTerm(key=HOSTNAME, selector=expressions("app In web"))
    shape = pod("shape", cpu=0.1, labels={"app": "web"}, anti_affinity=(anti_affinity,))
    cluster = Cluster(pool(), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(like=shape))
    assert len(cluster.plan().claims) == 3


def test_real_pods_precede_virtual_pods() -> None:
    cluster = Cluster(pool(limits={"cpu": 2000}), instance_types=INSTANCE_TYPES)
    add_buffer(cluster, buffer(replicas=1, like=pod("shape", cpu=1.5)))
    cluster.add(pod("real", cpu=0.5, age=-100))
    (planned,) = cluster.plan().claims
    assert planned.pods == ("real",)
