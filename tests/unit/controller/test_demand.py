"""Which pods are demand, for how long a nomination answers them, and when the workflow is told."""

from datetime import timedelta
from itertools import pairwise

import pytest

from tenure.controller.cache.nominations import Nominations
from tenure.controller.signals.pending_pods import Calls, place_of, told_apart, unanswered, wants_a_plan
from tenure.kube.facts.pods import pod_fact
from tenure.model.facts import PodFact
from tests.support.controller import builders
from tests.support.controller.builders import World, at, away, claim, node, pod


@pytest.fixture
def world() -> World:
    world = World()
    world.hear("nodeclaims", claim("coming", phase="Launched"), claim("up", phase="Initialized"))
    world.hear("nodes", node("n-up", of="up"), node("by-hand"))
    return world


def names(world: World, nominations: Nominations, seconds: float = 0) -> list[str]:
    return [one.name for one in unanswered(world.caches, nominations, away(world), at(seconds))]


@pytest.mark.parametrize(
    ("raw", "is_demand"),
    [
        (pod("p"), True),
        (pod("p", on="by-hand"), False),
        (pod("p", owner="DaemonSet"), False),
        (pod("p", owner="Node"), False),
        (pod("p", phase="Failed"), False),
        (pod("p", metadata={"deletionTimestamp": builders.stamp(9)}), False),
        ({**pod("p"), "status": {"phase": "Pending"}}, False),
        ({**pod("p"), "status": {**pod("p")["status"], "nominatedNodeName": "n"}}, False),
    ],
    ids=["unschedulable", "bound", "daemonset", "static", "failed", "going", "not looked at yet", "preempts"],
)
def test_which_pods_want_a_node(world: World, raw: builders.Json, is_demand: bool) -> None:
    world.hear("pods", raw)
    assert bool(names(world, Nominations())) is is_demand


def test_pods_of_a_node_that_goes_want_another(world: World) -> None:
    world.hear("pods", pod("moves", on="n-up"), pod("agent", on="n-up", owner="DaemonSet"))
    assert names(world, Nominations()) == []
    world.hear("nodeclaims", claim("up", phase="Initialized", deleting=True))
    assert names(world, Nominations()) == ["moves"]


def test_a_first_plan_is_waited_for_by_whatever_has_no_place_or_loses_its_own(world: World) -> None:
    world.hear("pods", pod("stays", on="n-up"))
    assert not wants_a_plan(world.caches, at(0))
    world.hear("nodeclaims", claim("up", phase="Initialized", deleting=True))
    assert wants_a_plan(world.caches, at(0)), "the place that it was given before is not known here"
    world.lose("pods", pod("stays", on="n-up"))
    assert not wants_a_plan(world.caches, at(0))
    world.hear("pods", {**pod("new"), "status": {"phase": "Pending"}})
    assert wants_a_plan(world.caches, at(0)), "kube-scheduler has not come to it yet"
    world.hear("pods", {**pod("new", schedulingGates=[{"name": "quota"}]), "status": {"phase": "Pending"}})
    assert not wants_a_plan(world.caches, at(0)), "others keep it from having one"


def test_a_pod_expected_on_a_node_that_still_comes_is_no_demand_however_long_that_takes(world: World) -> None:
    world.hear("pods", pod("p"))
    nominations = Nominations()
    nominations.renew({"uid-p": "coming"}, at(0))
    assert names(world, nominations, 600) == []


def test_on_a_node_that_is_up_the_expectation_lapses(world: World) -> None:
    world.hear("pods", pod("p"))
    nominations = Nominations()
    nominations.renew({"uid-p": "up"}, at(0))
    assert names(world, nominations, 19) == [] and names(world, nominations, 20) == ["p"]
    nominations.renew({"uid-p": "by-hand"}, at(20))
    assert names(world, nominations, 39) == [] and names(world, nominations, 40) == ["p"]


def test_pods_of_a_place_that_is_going_are_demand_again(world: World) -> None:
    world.hear("pods", pod("p"), pod("q"))
    nominations = Nominations()
    nominations.renew({"uid-p": "coming", "uid-q": "vanished"}, at(0))
    assert names(world, nominations) == ["q"]
    world.hear("nodeclaims", claim("coming", phase="Launched", deleting=True))
    assert names(world, nominations) == ["p", "q"]


def test_a_plan_that_names_the_node_means_its_claim(world: World) -> None:
    assert place_of("n-up", world.caches) == "up"
    assert place_of("by-hand", world.caches) == "by-hand"
    assert place_of("coming", world.caches) == "coming"


def test_expectations_end_with_their_pods() -> None:
    nominations = Nominations()
    nominations.renew({"a": "up", "b": "up"}, at(0))
    assert nominations.expected("up") and nominations.lapse("up", at(-50)) == at(110)
    assert nominations.lapse("up", None) is None
    assert nominations.bound("a", at(3)) == "up" and nominations.expected("up")
    assert nominations.bound("b", at(5)) == "up" and not nominations.expected("up")
    assert nominations.lapse("up", at(-50)) == at(5)
    assert nominations.bound("b", at(6)) == ""
    nominations.renew({"a": "up"}, at(7))
    assert set(nominations.forget("up")) == {"a"} and nominations.of("a") is None


def test_a_place_whose_pod_vanished_is_still_kept_for_a_while() -> None:
    nominations = Nominations()
    nominations.renew({"a": "up"}, at(0))
    nominations.gone("a", "web", at(8))
    nominations.gone("a", "web", at(9))
    assert nominations.of("a") is None and nominations.expected("up")
    assert nominations.lapse("up", None) is None and nominations.lapse("up", at(5)) == at(28)
    nominations.forget("up")
    assert not nominations.expected("up")


# --- pods of one owner are alike ---


def alike() -> Nominations:
    """Pods by the first letter of their names."""
    return Nominations(lambda pod: pod[0])


def test_a_successor_that_takes_anothers_place_leaves_it_its_own() -> None:
    nominations = alike()
    nominations.renew({"w1": "one", "w2": "two", "x1": "two"}, at(0))
    nominations.gone("w1", "w", at(50))
    assert nominations.came("w9", "two", at(51)) == "one"
    assert nominations.waiting("one") == ("w2",) and nominations.waiting("two") == ("x1",)
    assert nominations.lapse("one", at(0)) == at(161)


def test_pods_that_swap_their_places_are_expected_where_they_are_not_yet() -> None:
    nominations = alike()
    nominations.renew({"w1": "one", "w2": "two"}, at(0))
    assert nominations.came("w1", "two", at(3)) == "one" and nominations.bound("w1", at(3)) == "one"
    assert nominations.waiting("one") == ("w2",) and not nominations.waiting("two")


@pytest.mark.parametrize(
    ("came", "where", "seconds"),
    [
        pytest.param("y1", "two", 51, id="of another owner"),
        pytest.param("w9", "three", 51, id="where nobody was expected"),
        pytest.param("w9", "one", 51, id="into its own place"),
        pytest.param("w9", "two", 70, id="long after"),
    ],
)
def test_any_other_that_comes_changes_nothing(came: str, where: str, seconds: float) -> None:
    nominations = alike()
    nominations.renew({"w1": "one", "w2": "two"}, at(0))
    nominations.gone("w1", "w", at(50))
    assert nominations.came(came, where, at(seconds)) == ""
    assert nominations.waiting("two") == ("w2",) and not nominations.waiting("one")


# --- when the workflow is told ---


def facts(*uids: str) -> list[PodFact]:
    return [pod_fact(pod(uid)) for uid in uids]


def test_new_pods_are_told_at_once_and_then_at_a_pace() -> None:
    calls = Calls()
    first = calls.decide(facts("a"), at(0))
    assert first is not None and (first.pods, first.newest) == (1, at(0))
    assert calls.decide(facts("a", "b"), at(0.1)) is None and calls.again == at(0.4)
    second = calls.decide(facts("a", "b", "c"), at(0.4))
    assert second is not None and (second.pods, second.newest) == (3, at(0.4))


def test_the_same_pods_are_told_ever_more_slowly() -> None:
    calls, told = Calls(), []
    for tick in range(0, 400):
        if calls.decide(facts("a"), at(tick)):
            told.append(tick)
    assert told[:5] == [0, 10, 30, 70, 130]


def test_a_renewal_does_not_open_the_batch_window_again() -> None:
    calls = Calls()
    calls.decide(facts("a"), at(0))
    again = calls.decide(facts("a"), at(10))
    assert again is not None and again.newest == at(0)


def test_a_pod_whose_answer_lapsed_is_new() -> None:
    calls = Calls()
    calls.decide(facts("a", "b"), at(0))
    assert calls.decide(facts("b"), at(1)) is None
    back = calls.decide(facts("a", "b"), at(2))
    assert back is not None and back.newest == at(2)


def test_a_pod_that_lost_its_place_is_told_without_a_pause_and_keeps_its_turn() -> None:
    calls = Calls()
    calls.decide(facts("a", "b"), at(0))
    assert calls.decide([], at(1), {"uid-a", "uid-b"}) is None
    back = calls.decide(facts("a", "c"), at(1.1), {"uid-b"})
    assert back is not None and back.at_once and (back.pods, back.newest) == (2, at(1.1))
    again = calls.decide(facts("a", "b"), at(1.2))
    assert again is not None and again.at_once and again.newest == at(0)
    assert calls.decide(facts("a", "b"), at(1.3)) is None


def test_a_pod_that_loses_every_place_is_told_ever_more_slowly() -> None:
    """A plan that believes in what no launch can have goes round: NodeClaims made and given up twice a second."""
    calls, told, tick = Calls(), [], 0.0
    while tick < 200:
        if calls.decide(facts("a"), at(tick)):
            told.append(round(tick))
            calls.decide([], at(tick + 0.2), {"uid-a"})
        tick += 0.5
    assert told[:4] == [0, 0, 1, 2] or told[:4] == [0, 1, 1, 2]
    pauses = [after - before for before, after in pairwise(told[3:])]
    assert [round(pause, -1) for pause in pauses[:3]] == [10, 20, 40] and max(pauses) <= 61


def test_a_pod_that_is_held_back_holds_back_no_other() -> None:
    calls = Calls()
    for tick in range(5):
        calls.decide(facts("a"), at(tick))
        calls.decide([], at(tick + 0.5), {"uid-a"})
    assert calls.decide(facts("a"), at(5)) is None and calls.again is not None
    other = calls.decide(facts("a", "b"), at(6))
    assert other is not None and other.pods == 1


def test_without_demand_nothing_is_told_and_nothing_is_waited_for() -> None:
    calls = Calls()
    assert calls.decide([], at(0)) is None and calls.again is None
    calls.decide(facts("a"), at(1))
    assert calls.decide([], at(2)) is None and calls.again is None
    assert calls.decide(facts("a"), at(2) + timedelta(seconds=1)) is not None


def test_the_next_lapse_is_known_so_that_a_quiet_cluster_forgets_no_pod(world: World) -> None:
    world.hear("pods", pod("p"), pod("q"), pod("r"))
    nominations = Nominations()
    assert told_apart(world.caches, nominations, away(world), at(0)).lapse is None
    nominations.renew({"uid-p": "coming"}, at(0))
    assert told_apart(world.caches, nominations, away(world), at(0)).lapse is None
    nominations.renew({"uid-q": "up"}, at(3))
    nominations.renew({"uid-r": "up"}, at(5))
    assert told_apart(world.caches, nominations, away(world), at(6)).lapse == at(23)
    assert told_apart(world.caches, nominations, away(world), at(23)).lapse == at(25)
