"""Storage in the caches: what the planner is handed, and who is told of anew."""

import pytest

from tenure.controller.cache.nominations import Nominations
from tenure.controller.signals.pending_pods import PAUSE, Calls, unanswered, waiting_for
from tenure.scheduling.snapshot import Change, Facts
from tests.support.controller.builders import Json, World, at, away, pod


@pytest.fixture
def world() -> World:
    world = World()
    world.hear("storageclasses", {"metadata": {"name": "gp3", "uid": "s"}, "provisioner": "ebs.csi.aws.com"})
    world.hear("persistentvolumes", {"metadata": {"name": "pv", "uid": "v"}, "spec": {"nfs": {}}})
    world.hear("persistentvolumeclaims", claim())
    world.hear("csinodes", {"metadata": {"name": "n", "uid": "c"}, "spec": {"drivers": []}})
    return world


def claim(name: str = "data", **spec: str) -> Json:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


def keys(changes: tuple[Change, ...]) -> set[tuple[str, str]]:
    return {(one.kind, one.key) for one in changes}


EVERYTHING = {("storage_class", "gp3"), ("volume", "pv"), ("volume_claim", "default/data"), ("csi_node", "n")}


def test_the_planner_is_handed_every_kind_as_a_change_and_as_a_whole(world: World) -> None:
    changes = world.caches.take_changes()
    assert keys(changes) == EVERYTHING and keys(world.caches.snapshot()) == EVERYTHING
    facts = Facts()
    for change in changes:
        facts.apply(change)
    assert facts.storage.claims["default/data"] == world.caches.storage.claims["default/data"]
    assert set(facts.storage.csi_nodes) == {"n"} and set(facts.storage.volumes) == {"pv"}


def test_what_is_gone_is_taken_back(world: World) -> None:
    world.caches.take_changes()
    world.lose("persistentvolumeclaims", claim())
    world.lose("persistentvolumes", {"metadata": {"name": "pv", "uid": "v"}})
    changes = world.caches.take_changes()
    assert keys(changes) == {("volume_claim", "default/data"), ("volume", "pv")}
    assert all(one.fact is None for one in changes) and not world.caches.storage.claims


def test_what_does_not_change_the_facts_is_no_change(world: World) -> None:
    world.caches.take_changes(), world.caches.take_dirty()
    same = claim()
    same["status"] = {"phase": "Pending", "conditions": []}
    world.hear("persistentvolumeclaims", same)
    assert not world.caches.take_changes() and not world.caches.take_dirty().volume_claims


def test_an_object_that_cannot_be_read_hurts_only_itself(world: World) -> None:
    world.hear(
        "storageclasses", {"metadata": {"name": "odd", "uid": "o"}}, {"metadata": {"name": "x"}, "provisioner": "p"}
    )
    assert set(world.caches.storage.classes) == {"gp3", "x"}


def test_a_fact_of_another_kind_is_an_error(world: World) -> None:
    wrong = world.caches.storage.volumes["pv"]
    with pytest.raises(TypeError, match="a volume_claim was announced and a VolumeFact given"):
        Facts().apply(Change(kind="volume_claim", key="default/data", fact=wrong))


def test_pods_that_wait_for_a_claim_are_told_of_again_once_it_changes(world: World) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    world.hear("pods", pod("uses", volumes=volumes), pod("other"))
    nominations, calls = Nominations(), Calls()
    assert calls.decide(unanswered(world.caches, nominations, away(world), at(0)), at(0)) is not None
    world.caches.take_dirty()
    world.hear("persistentvolumeclaims", claim(volumeName="pv"))
    dirty = world.caches.take_dirty()
    assert dirty.pods and dirty.volume_claims == {"default/data"}
    concerned = waiting_for(world.caches, dirty.volume_claims)
    assert concerned == ["uid-uses"]
    soon = at(1 + PAUSE.total_seconds())
    assert calls.decide(unanswered(world.caches, nominations, away(world), soon), soon) is None
    calls.renew(concerned)
    assert calls.decide(unanswered(world.caches, nominations, away(world), soon), soon) is not None


def test_nobody_waits_where_nothing_changed(world: World) -> None:
    world.hear("pods", pod("p"))
    assert waiting_for(world.caches, ()) == [] and waiting_for(world.caches, {"default/data"}) == []
