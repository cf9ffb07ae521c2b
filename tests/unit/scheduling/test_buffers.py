"""Room for CapacityBuffers in plans: it is bought and counted, and expected and told by nobody."""

from tenure.apis.labels import HOSTNAME
from tenure.model.extra_capacity import LOWEST_PRIORITY, BufferFact, virtual_pods
from tenure.model.facts import AffinityTerm, PodFact
from tenure.scheduling.cluster_state import Change
from tests.unit.scheduling.builders import World, claim, expressions, kind, node, pod, pool

KINDS = (kind("m.large", cpu=2, memory=8),)
"""1.9 CPUs are for pods."""


def buffer(name: str = "spare", replicas: int = 3, like: PodFact | None = None) -> BufferFact:
    shape = like or pod("shape", cpu=1)
    return BufferFact(uid=f"uid-{name}", namespace="default", name=name, replicas=replicas, pod=shape)


def keep(world: World, fact: BufferFact) -> None:
    world.state.apply([Change(kind="buffer", key=fact.uid, fact=fact)])


def test_the_virtual_pods_have_karpenters_names() -> None:
    first, second = virtual_pods(buffer(replicas=2))
    assert (first.name, first.uid) == ("capacity-buffer-spare-0", "uid-spare-0")
    assert (second.name, second.uid) == ("capacity-buffer-spare-1", "uid-spare-1")
    assert first.priority == LOWEST_PRIORITY


def test_room_is_bought_and_nobody_is_expected_there() -> None:
    world = World(pool(), kinds=KINDS)
    keep(world, buffer())
    plan = world.plan()
    assert len(plan.claims) == 3
    assert all(one.pods == () for one in plan.claims)
    assert (plan.nominations, plan.reserved, plan.unplaced) == ({}, {}, ())


def test_room_that_is_coming_is_not_bought_again() -> None:
    world = World(pool(), kinds=KINDS)
    keep(world, buffer())
    bought = world.commit(world.plan())
    again = world.plan(after=1)
    assert again.claims == ()
    assert set(again.reserved.values()) == set(bought)
    assert set(again.reserved) == {f"uid-spare-{number}" for number in range(3)}


def test_a_real_pod_takes_the_room_and_more_is_bought() -> None:
    world = World(pool(), kinds=KINDS)
    keep(world, buffer(replicas=1))
    (bought,) = world.commit(world.plan())
    world.add(pod("real", cpu=1))
    plan = world.plan(after=1)
    assert plan.nominations == {"real": bought}
    assert len(plan.claims) == 1
    assert len(plan.nominations) + len(plan.reserved) == 1


def test_what_stands_empty_is_room() -> None:
    ready = node("n1", cpu=2)
    world = World(pool(), ready, claim("c1", on=ready), kinds=KINDS)
    keep(world, buffer(replicas=2))
    plan = world.plan()
    assert plan.claims == ()
    assert plan.reserved == {"uid-spare-0": "n1", "uid-spare-1": "n1"}


def test_limits_hold_for_room_too_and_nobody_is_told() -> None:
    world = World(pool(limits={"cpu": 4000}), kinds=KINDS)
    keep(world, buffer(replicas=10))
    plan = world.plan()
    assert len(plan.claims) == 2
    assert plan.unplaced == ()


def test_a_selector_that_nothing_satisfies_hurts_no_other() -> None:
    world = World(pool(), kinds=KINDS)
    keep(world, buffer("lost", like=pod("shape", selector={"no/where": "x"})))
    keep(world, buffer("spare", replicas=1))
    assert len(world.plan().claims) == 1


def test_a_buffer_that_goes_or_shrinks_wants_less() -> None:
    world = World(pool(), kinds=KINDS)
    keep(world, buffer())
    keep(world, buffer(replicas=1))
    assert len(world.plan().claims) == 1
    world.state.apply([Change(kind="buffer", key="uid-spare", fact=None)])
    assert world.plan().claims == ()


def test_another_shape_counts_at_once() -> None:
    world = World(pool(), kinds=(*KINDS, kind("m.2xlarge", cpu=8, memory=32)))
    keep(world, buffer(replicas=1))
    assert world.plan().claims[0].requests["cpu"] == 1000
    keep(world, buffer(replicas=1, like=pod("shape", cpu=5)))
    assert world.plan().claims[0].requests["cpu"] == 5000


def test_pods_that_keep_apart_get_a_node_each() -> None:
    apart = AffinityTerm(key=HOSTNAME, selector=expressions("app In web"))
    shape = pod("shape", cpu=0.1, labels={"app": "web"}, anti_affinity=(apart,))
    world = World(pool(), kinds=KINDS)
    keep(world, buffer(like=shape))
    assert len(world.plan().claims) == 3


def test_real_pods_come_first_where_there_is_not_room_for_all() -> None:
    world = World(pool(limits={"cpu": 2000}), kinds=KINDS)
    keep(world, buffer(replicas=1, like=pod("shape", cpu=1.5)))
    world.add(pod("real", cpu=0.5, age=-100))
    (bought,) = world.plan().claims
    assert bought.pods == ("real",)
