"""The caches: what is remembered, what becomes dirty, and what the planner is handed."""

from datetime import datetime

import pytest

from tenure.model.facts import ClaimFact
from tests.support.controller import builders
from tests.support.controller.builders import World, at, bound, claim, node, node_class, pod, pool


@pytest.fixture
def world() -> World:
    world = World()
    world.hear("nodepools", pool())
    world.hear("ec2nodeclasses", node_class())
    world.hear("nodeclaims", claim("c1", phase="Initialized"))
    world.hear("nodes", node("n1", of="c1"))
    world.caches.take_dirty()
    world.caches.take_changes()
    return world


def dirty_claims(world: World) -> set[str]:
    return world.caches.take_dirty().claims


def test_a_node_is_found_by_its_claims_provider_id(world: World) -> None:
    one = world.caches.claims["c1"]
    assert [found.name for found in world.caches.nodes_of(one)] == ["n1"]
    assert world.caches.claim_of("n1") == "c1"
    world.lose("nodes", node("n1", of="c1"))
    assert world.caches.nodes_of(one) == () and dirty_claims(world) == {"c1"}


def test_only_the_first_and_the_last_pod_on_a_node_matter_to_its_claim(world: World) -> None:
    world.hear("pods", pod("a", on="n1"))
    assert dirty_claims(world) == {"c1"}
    world.hear("pods", pod("b", on="n1"))
    assert dirty_claims(world) == set()
    world.lose("pods", pod("a", on="n1"))
    assert dirty_claims(world) == set() and world.caches.occupancy.occupied("n1")
    world.now = at(5)
    world.lose("pods", pod("b", on="n1"))
    assert dirty_claims(world) == {"c1"}
    assert not world.caches.occupancy.occupied("n1") and world.caches.occupancy.vacated("n1") == at(5)


@pytest.mark.parametrize(
    "stays",
    [
        pod("x", on="n1", owner="DaemonSet"),
        pod("x", on="n1", owner="Node"),
        pod("x", on="n1", phase="Succeeded"),
        pod("x", on="n1", metadata={"deletionTimestamp": builders.stamp(30)}),
    ],
    ids=["daemonset", "static", "finished", "terminating"],
)
def test_pods_that_need_no_place_elsewhere_keep_no_node(world: World, stays: builders.Json) -> None:
    world.hear("pods", stays)
    assert not world.caches.occupancy.occupied("n1") and dirty_claims(world) == set()


def test_a_terminating_pod_of_a_statefulset_keeps_its_node(world: World) -> None:
    going = {"deletionTimestamp": builders.stamp(30)}
    world.hear("pods", pod("x", on="n1", owner="StatefulSet", metadata=going))
    assert world.caches.occupancy.occupied("n1")


def test_a_pod_that_is_bound_or_gone_is_told_of_and_no_longer_pending(world: World) -> None:
    bound: list[str] = []
    gone: list[str] = []
    world.caches.on_pod_bound, world.caches.on_pod_gone = bound.append, lambda pod: gone.append(pod.uid)
    world.hear("pods", pod("a"))
    assert set(world.caches.pending) == {"uid-a"} and world.caches.take_dirty().pods
    world.hear("pods", pod("a", on="n1"))
    assert not world.caches.pending and (bound, gone) == (["uid-a"], [])
    world.hear("pods", pod("b"))
    world.lose("pods", pod("b"), pod("a", on="n1"))
    assert (bound, gone) == (["uid-a"], ["uid-b", "uid-a"])


@pytest.mark.parametrize(("owner", "followed"), [("ReplicaSet", True), ("StatefulSet", False)])
def test_a_pod_that_is_going_is_gone_once_another_takes_its_place(world: World, owner: str, followed: bool) -> None:
    gone: list[str] = []
    world.caches.on_pod_gone = lambda pod: gone.append(pod.uid)
    world.hear("pods", pod("a", on="n1", owner=owner))
    world.hear("pods", pod("a", on="n1", owner=owner, metadata={"deletionTimestamp": builders.stamp(30)}))
    assert bool(gone) is followed
    assert world.caches.owner_of("uid-a") == world.caches.pods["uid-a"].owner_uid and not world.caches.owner_of("no")


def test_what_does_not_change_the_facts_is_no_change(world: World) -> None:
    same = claim("c1", phase="Initialized", resourceVersion="99")
    same["status"]["unheardOf"] = builders.stamp()
    world.hear("nodeclaims", same)
    world.hear("nodes", node("n1", of="c1", managedFields=[]))
    dirty = world.caches.take_dirty()
    assert not dirty.claims and not world.caches.take_changes()


def test_a_claim_of_another_provider_is_not_ours(world: World) -> None:
    other = claim("kwok")
    other["spec"]["nodeClassRef"] = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "x"}
    world.hear("nodeclaims", other)
    assert "kwok" not in world.caches.claims


def test_a_claim_that_came_back_under_its_name_is_another_one(world: World) -> None:
    world.hear("nodeclaims", claim("c1", uid="uid-again"))
    dirty = world.caches.take_dirty()
    assert set(dirty.gone_claims) == {"uid-c1"} and dirty.claims == {"c1"}
    assert world.caches.claims["c1"].uid == "uid-again"
    world.lose("nodeclaims", claim("c1"))
    assert "c1" in world.caches.claims, "the end of the first is no end of the second"


def test_an_expected_claim_counts_until_the_watch_shows_it_and_never_after_it_is_gone(world: World) -> None:
    expected = builders.claim_fact(name="new", uid="uid-new")
    world.caches.expect(expected)
    assert "new" in world.caches.claims
    world.lose("nodeclaims", claim("new"))
    assert "new" not in world.caches.claims
    world.caches.expect(expected)
    assert "new" not in world.caches.claims, "the watch was ahead of the answer to the creation"


def test_a_pools_policy_wakes_its_claims(world: World) -> None:
    policy = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}
    world.hear("nodepools", pool(disruption=policy))
    assert dirty_claims(world) == {"c1"} and world.caches.pools["general"].policy == "WhenEmpty/30s"
    world.hear("nodepools", pool(disruption=policy, weight=3))
    assert dirty_claims(world) == set()


def test_a_node_class_makes_its_pools_dirty(world: World) -> None:
    world.hear("ec2nodeclasses", node_class(generation=2))
    dirty = world.caches.take_dirty()
    assert dirty.node_classes == {"default"} and dirty.pools == {"general"}


def test_an_object_that_cannot_be_read_leaves_the_others_alone(world: World) -> None:
    broken = pod("broken")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "lots"
    world.hear("pods", broken, pod("fine"))
    assert set(world.caches.pods) == {"uid-fine"}


def test_the_planner_gets_the_latest_form_of_each_object_once(world: World) -> None:
    world.hear("pods", pod("a"), pod("a", on="n1"), pod("b"))
    world.lose("pods", pod("b"))
    changes = world.caches.take_changes()
    told = [(one.key, one.fact is None) for one in changes]
    assert told == [("c1", False), ("uid-a", False), ("uid-b", True)], "and the node's claim had a pod come to it"
    assert world.caches.take_changes() == ()
    world.hear("pods", pod("c"))
    assert {one.key for one in world.caches.snapshot()} == {"general", "n1", "c1", "uid-a", "uid-c"}
    assert world.caches.take_changes() == (), "a snapshot has the changes that were waiting"


def test_a_claim_that_is_initialized_starts_the_time_that_its_pods_have(world: World) -> None:
    world.hear("nodeclaims", claim("c2", phase="Registered"))
    assert world.caches.take_dirty().pods
    world.hear("nodeclaims", claim("c2", phase="Registered", annotations={"a": "b"}))
    assert not world.caches.take_dirty().pods
    world.hear("nodeclaims", claim("c2", phase="Initialized"))
    assert world.caches.take_dirty().pods


def last_pod_event(world: World) -> datetime | None:
    return next(one.fact.last_pod_event for one in world.caches.snapshot() if isinstance(one.fact, ClaimFact))


def test_the_planner_is_told_when_a_pod_came_to_a_node_or_left_it_last(world: World) -> None:
    assert last_pod_event(world) is None
    world.hear("pods", pod("a", on="n1"))
    assert last_pod_event(world) == at(0)
    world.now = at(30)
    world.hear("pods", pod("a", on="n1", metadata={"labels": {"changed": "yes"}}), pod("d", on="n1", owner="DaemonSet"))
    assert last_pod_event(world) == at(0), "a pod that stays, and one of a DaemonSet, are no such event"
    world.lose("pods", pod("a", on="n1"))
    (told,) = [one.fact for one in world.caches.take_changes() if isinstance(one.fact, ClaimFact)]
    assert told.last_pod_event == at(30) == last_pod_event(world)


def test_a_pod_that_was_there_before_this_process_came_when_it_was_bound(world: World) -> None:
    world.hear("pods", bound(pod("a", on="n2"), -3600))
    world.hear("nodes", node("n2", of="c2"))
    world.hear("nodeclaims", claim("c2", phase="Initialized"))
    facts = {one.key: one.fact for one in world.caches.take_changes()}
    told = facts["c2"]
    assert isinstance(told, ClaimFact) and told.last_pod_event == at(-3600)


def test_a_pod_that_is_bound_now_came_now(world: World) -> None:
    world.hear("pods", pod("a"))
    world.now = at(5)
    world.hear("pods", pod("a", on="n1"))
    assert last_pod_event(world) == at(5)


def test_the_planner_is_told_of_pod_disruption_budgets_and_when_they_are_gone(world: World) -> None:
    budget = {"metadata": {"name": "web", "namespace": "a"}, "spec": {"maxUnavailable": 1}}
    world.hear("poddisruptionbudgets", budget)
    (change,) = world.caches.take_changes()
    assert (change.kind, change.key) == ("pod_budget", "a/web") and change in world.caches.snapshot()
    world.lose("poddisruptionbudgets", budget)
    assert [(one.key, one.fact) for one in world.caches.take_changes()] == [("a/web", None)]
