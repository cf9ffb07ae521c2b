"""A node that is away holds its pods, and is not empty, for as long as it is expected back."""

from typing import Any

import pytest

from tenure.apis.labels import AWAY
from tenure.controller.cache.nominations import Nominations
from tenure.controller.signals.pending_pods import told_apart, unanswered
from tenure.kube.facts.objects import node_fact
from tenure.model.facts import NodeFact
from tests.support.controller.builders import World, at, away, claim, node, pod, stamp

CNI = {"key": "cni.example.com/agent-not-ready", "effect": "NoExecute"}


def gone_since(seconds: float, status: str = "False") -> list[dict[str, Any]]:
    return [{"type": "Ready", "status": status, "lastTransitionTime": stamp(seconds)}]


@pytest.fixture
def world() -> World:
    world = World()
    world.hear("nodeclaims", claim("up", phase="Initialized"))
    world.hear("nodes", node("n-up", of="up"))
    world.hear("pods", pod("p"))
    return world


def hear_ready(world: World, since: float, *, ready: bool, taints: list[dict[str, Any]] | None = None) -> None:
    raw = node("n-up", of="up", taints=taints)
    raw["status"]["conditions"] = gone_since(since, str(ready))
    world.hear("nodes", raw)


def expecting() -> Nominations:
    nominations = Nominations()
    nominations.renew({"uid-p": "up"}, at(0))
    return nominations


def wants(world: World, nominations: Nominations, seconds: float, grace: float = 60) -> bool:
    return bool(unanswered(world.caches, nominations, away(world, grace), at(seconds)))


def test_a_pod_waits_for_its_node_that_is_away_until_the_grace_is_over(world: World) -> None:
    nominations = expecting()
    hear_ready(world, 10, ready=False)
    assert not wants(world, nominations, 69)
    assert told_apart(world.caches, nominations, away(world, 60), at(12)).lapse == at(70)
    assert wants(world, nominations, 70)


def test_it_is_demand_at_the_end_of_the_grace_though_it_was_answered_just_before(world: World) -> None:
    hear_ready(world, 10, ready=False)
    nominations = Nominations()
    nominations.renew({"uid-p": "up"}, at(65))
    assert not wants(world, nominations, 69) and wants(world, nominations, 70)


def test_a_node_that_is_back_gives_its_pods_the_time_that_a_new_one_does(world: World) -> None:
    nominations = expecting()
    hear_ready(world, 10, ready=False)
    hear_ready(world, 50, ready=True)
    assert not wants(world, nominations, 69) and wants(world, nominations, 70)


def test_what_was_used_of_the_grace_is_not_given_again(world: World) -> None:
    nominations = expecting()
    world.hear("nodeclaims", claim("up", phase="Initialized", annotations={AWAY: f"{stamp(-40)}/{stamp(-10)}"}))
    hear_ready(world, 10, ready=False)
    assert not wants(world, nominations, 39) and wants(world, nominations, 40)


def test_a_declared_taint_that_came_back_counts_from_when_it_was_seen(world: World) -> None:
    nominations = expecting()
    raw = claim("up", phase="Initialized")
    raw["spec"]["startupTaints"] = [CNI]
    world.hear("nodeclaims", raw)
    world.now = at(10)
    hear_ready(world, -40, ready=True, taints=[CNI])
    world.now = at(30)
    hear_ready(world, -40, ready=True, taints=[CNI, {"key": "team", "effect": "NoSchedule"}])
    assert not wants(world, nominations, 69) and wants(world, nominations, 70)


def test_a_taint_says_itself_since_when_it_is_there(world: World) -> None:
    told = {**CNI, "timeAdded": stamp(-5)}
    hear_ready(world, -40, ready=True, taints=[told])
    assert known(world).tainted == {"cni.example.com/agent-not-ready:NoExecute": at(-5)}
    assert node_fact(node("n", taints=[CNI])).tainted == {}


def test_a_taint_that_went_and_came_back_is_there_since_then(world: World) -> None:
    for seconds, taints in ((1, [CNI]), (5, []), (9, [CNI])):
        world.now = at(seconds)
        hear_ready(world, -40, ready=True, taints=taints)
    assert list(known(world).tainted.values()) == [at(9)]


@pytest.mark.parametrize("changed", [{"ready": False}, {"taints": [CNI]}])
def test_pods_are_looked_at_again_when_a_node_leaves_or_comes_back(world: World, changed: dict[str, Any]) -> None:
    world.caches.take_dirty()
    world.hear("nodes", node("n-up", of="up", labels={"a": "b"}))
    assert not world.caches.take_dirty().pods
    world.hear("nodes", node("n-up", of="up", **changed))
    assert world.caches.take_dirty().pods
    world.hear("nodes", node("n-up", of="up"))
    assert world.caches.take_dirty().pods


def test_a_device_that_goes_is_missing_since_it_was_seen_to_go(world: World) -> None:
    def hear(seconds: float, **devices: str) -> None:
        world.now = at(seconds)
        raw = node("n-up", of="up")
        raw["status"]["capacity"] = {"cpu": "2", "nvidia.com/gpu": "1"}
        raw["status"]["allocatable"] |= devices
        world.hear("nodes", raw)

    gpu = "nvidia.com/gpu"
    hear(1, **{gpu: "1"})
    assert known(world).missing == {}
    world.caches.take_dirty()
    hear(5, **{gpu: "0"})
    assert known(world).missing == {gpu: at(5)} and world.caches.take_dirty().pods
    hear(9)
    assert known(world).missing == {gpu: at(5)}, "not even named any more"
    hear(11, **{gpu: "1"})
    assert known(world).missing == {} and world.caches.take_dirty().pods


def known(world: World) -> NodeFact:
    return world.caches.nodes["n-up"]


def test_a_place_is_kept_for_as_long_as_its_pod_runs_on_a_node_that_goes(world: World) -> None:
    world.hear("nodeclaims", claim("old", phase="Initialized", deleting=True))
    world.hear("nodes", node("n-old", of="old"))
    world.hear("pods", pod("p", on="n-old"))
    nominations, up = expecting(), world.caches.claims["up"]
    for seconds, lapse in ((0, 110), (30, 110), (3600, 3620)):
        assert away(world).lapse(up, nominations, at(seconds)) == at(lapse)
    world.hear("nodeclaims", claim("old", phase="Initialized"))
    assert away(world).lapse(up, nominations, at(3600)) == at(110), "the node stays after all"
