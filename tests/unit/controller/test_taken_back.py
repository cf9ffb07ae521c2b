"""What AWS takes back: pools are marked once for a storm, and pods are demand as soon as the word is read."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.nominations import Nominations
from tenure.controller.interruption import ANEW_AFTER, LEAVES_WITHIN, STORM, TakenBack
from tenure.controller.signals.pending_pods import told_apart, unanswered
from tenure.controller.signals.provisioning_trigger import Asking
from tenure.model.interruption.notices import Notice
from tenure.model.launch import UNAVAILABLE_FOR
from tenure.model.observations import DemandSeen, MarksSeen
from tenure.model.workflow_states import BatchWindow
from tests.support.controller.builders import World, at, away, claim, node, pod


def labels(zone: str = "us-west-2a", kind: str = "spot", **more: str) -> dict[str, str]:
    return {
        "karpenter.sh/nodepool": "general",
        "node.kubernetes.io/instance-type": "m6i.large",
        "topology.kubernetes.io/zone": zone,
        "karpenter.sh/capacity-type": kind,
        **more,
    }


class Scene(World):
    def __init__(self) -> None:
        super().__init__()
        self.rules: LifecycleRules | None = None
        self.told: list[MarksSeen] = []
        self.taken = TakenBack(self.caches, lambda pool: self.rules, self.told.append, lambda: self.now)

    def stand(self, *names: str, **of: Any) -> None:
        """Nodes with a pod each."""
        for name in names:
            self.hear("nodeclaims", claim(name, phase="Initialized", labels=labels(**of)))
            self.hear("nodes", node(f"n-{name}", of=name))
            self.hear("pods", pod(f"p-{name}", on=f"n-{name}"))
        self.caches.take_changes()
        self.caches.take_dirty()

    def warn(self, name: str, kind: str = "spotInterruption", seconds: float = 0, **more: Any) -> None:
        notice = Notice.model_validate({"kind": kind, "id": "terminate", "at": at(seconds), **more})
        self.taken.hear(self.caches.claims[name], [notice])

    def first_out(self, name: str, kind: str = "spotInterruption", **more: Any) -> list[str] | None:
        """The pods that have to go before anybody is asked; None where the node's workflow decides."""
        notice = Notice.model_validate({"kind": kind, "id": "terminate", "at": at(0), **more})
        found = self.taken.leaving(self.caches.claims[name], [notice])
        return None if found is None else sorted(pod.name for pod in found.pods)

    def wait(self, seconds: float) -> None:
        self.now = at(seconds)
        self.taken.look(self.now)

    def demand(self) -> list[str]:
        return sorted(one.name for one in unanswered(self.caches, Nominations(), away(self), self.now))

    def leaving(self) -> list[str]:
        """As the planner is told."""
        return [one.key for one in self.caches.take_changes() if one.kind == "claim" and one.fact.deleting]  # type: ignore[union-attr]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_storm_marks_each_pool_once(scene: Scene) -> None:
    scene.stand(*(f"a{number}" for number in range(50)))
    scene.stand(*(f"b{number}" for number in range(50)), zone="us-west-2b")
    for number in range(50):
        scene.warn(f"a{number}", seconds=number / 10)
        scene.warn(f"b{number}", seconds=number / 10)
    assert [one.storm for one in scene.told] == [None, None, at(0) + LEAVES_WITHIN]
    found = scene.told[-1].unavailable
    assert {(one.instance_type, one.zone, one.capacity_type) for one in found} == {
        ("m6i.large", "us-west-2a", "spot"),
        ("m6i.large", "us-west-2b", "spot"),
    }
    assert {one.until for one in found} == {at(0) + UNAVAILABLE_FOR}
    assert list(scene.taken.marks(at(0))) == list(found)


def test_a_storm_that_goes_on_marks_anew(scene: Scene) -> None:
    scene.stand("a", "b")
    scene.warn("a")
    scene.now = at(ANEW_AFTER.total_seconds())
    scene.warn("b", seconds=ANEW_AFTER.total_seconds())
    assert [one.until for one in scene.told[-1].unavailable] == [at(30) + UNAVAILABLE_FOR]


def test_a_mark_ends(scene: Scene) -> None:
    scene.stand("a")
    scene.warn("a")
    assert not scene.taken.marks(at(0) + UNAVAILABLE_FOR)


def test_a_message_that_comes_late_marks_for_what_is_left(scene: Scene) -> None:
    scene.stand("a", "b")
    scene.now = at(120)
    scene.warn("a", seconds=0)
    assert [one.until for one in scene.told[-1].unavailable] == [at(180)]
    scene.now = at(1000)
    scene.warn("b", seconds=0)
    assert len(scene.told) == 1 and scene.caches.going == {"a"}


@pytest.mark.parametrize(
    ("kind", "capacity", "reservation", "marked"),
    [
        ("spotInterruption", "spot", "", True),
        ("spotInterruption", "on-demand", "", False),
        ("capacityReservationInterruption", "reserved", "cr-1", True),
        ("rebalanceRecommendation", "spot", "", False),
        ("scheduledChange", "spot", "", False),
        ("instanceTerminating", "spot", "", False),
        ("instanceStatus", "spot", "", False),
    ],
)
def test_what_takes_capacity_back_marks_it(
    scene: Scene, kind: str, capacity: str, reservation: str, marked: bool
) -> None:
    reserved = {"karpenter.k8s.aws/capacity-reservation-id": reservation} if reservation else {}
    scene.stand("a", kind=capacity, **reserved)
    scene.warn("a", kind)
    assert [one.reservation_id for told in scene.told for one in told.unavailable] == [reservation] * marked


def test_pods_are_demand_before_anybody_deletes_their_nodes(scene: Scene) -> None:
    scene.stand("a", "b", "c")
    assert scene.demand() == []
    scene.warn("a")
    scene.warn("b")
    assert scene.demand() == ["p-a", "p-b"] and scene.caches.take_dirty().pods
    assert scene.leaving() == ["a", "b"]
    assert not scene.caches.claims["a"].deleting, "its life is told of a deletion by the API server alone"


def test_a_storm_that_is_read_in_seconds_is_one_batch(scene: Scene) -> None:
    names = [f"c{number:03}" for number in range(300)]
    scene.stand(*names)
    told: list[DemandSeen] = []
    asking = Asking(scene.caches, Nominations(), away(scene), None, told.append)
    for step in range(30):
        scene.now = at(step / 10)
        for name in names[10 * step : 10 * step + 10]:
            scene.warn(name, seconds=step / 10)
        asking.look(scene.caches.take_dirty(), scene.now, known=True)
    scene.now = at(3.4)
    asking.look(scene.caches.take_dirty(), scene.now, known=True)
    assert told[-1].pods == 300 and len(told) < 10
    assert all(later.newest - one.newest < BatchWindow().idle for one, later in pairwise(told)), "it stays open"
    assert not any(one.at_once for one in told)


def test_pods_that_are_made_for_evicted_ones_do_not_hold_the_batch_open(scene: Scene) -> None:
    """The first nodes of a storm are empty before the last are tainted: nothing would be bought until then."""
    scene.stand("a", "b", "c")
    told: list[DemandSeen] = []
    asking = Asking(scene.caches, Nominations(), away(scene), None, told.append)
    for name in ("a", "b", "c"):
        scene.warn(name)
    asking.look(scene.caches.take_dirty(), scene.now, known=True)
    for step, name in enumerate(("a", "b"), start=1):
        scene.now = at(step)
        scene.lose("pods", pod(f"p-{name}", on=f"n-{name}"))
        scene.hear("pods", pod(f"new-{name}"))
        asking.look(scene.caches.take_dirty(), scene.now, known=True)
    assert [(one.pods, one.newest) for one in told] == [(3, at(0))] * 3


def test_what_is_known_of_it_otherwise_does_not_undo_it(scene: Scene) -> None:
    scene.stand("a")
    scene.warn("a")
    scene.caches.take_changes()
    scene.hear("nodeclaims", claim("a", phase="Initialized", labels=labels(), annotations={"other": "news"}))
    assert scene.leaving() == ["a"]
    assert next(one.fact for one in scene.caches.snapshot() if one.kind == "claim").deleting  # type: ignore[union-attr]


def test_a_place_on_a_node_that_is_taken_back_answers_nothing(scene: Scene) -> None:
    scene.stand("a")
    scene.hear("pods", pod("new"))
    nominations = Nominations()
    nominations.renew({"uid-new": "a"}, scene.now)
    assert told_apart(scene.caches, nominations, away(scene), scene.now).waiting == {"uid-new"}
    scene.warn("a")
    assert told_apart(scene.caches, nominations, away(scene), scene.now).waiting == set()


def test_a_pool_that_takes_no_orders_keeps_its_nodes_and_the_mark_stands(scene: Scene) -> None:
    scene.rules = LifecycleRules.model_validate({"interruption": {"spotInterruption": {"action": "ignore"}}})
    scene.stand("a")
    scene.warn("a")
    assert scene.demand() == [] and len(scene.told) == 1


def test_what_aws_leaves_standing_is_no_demand_any_more(scene: Scene) -> None:
    scene.stand("a")
    scene.warn("a")
    assert scene.taken.next == at(0) + LEAVES_WITHIN
    scene.wait(LEAVES_WITHIN.total_seconds() - 1)
    assert scene.demand() == ["p-a"]
    scene.caches.take_changes()
    scene.wait(LEAVES_WITHIN.total_seconds())
    assert scene.demand() == [] and scene.leaving() == [] and scene.taken.next is None
    scene.warn("a")
    assert scene.demand() == [], "a repeat of what was said"


def test_what_is_gone_is_forgotten(scene: Scene) -> None:
    scene.stand("a")
    scene.warn("a")
    scene.lose("nodeclaims", claim("a"))
    scene.wait(1)
    assert scene.taken.next is None and not scene.caches.going


def test_a_storm_is_what_aws_took_back_lately_and_not_what_stands_of_it(scene: Scene) -> None:
    early, late = [f"a{number}" for number in range(STORM - 2)], ["b", "c"]
    scene.stand(*early, *late)
    for name in early:
        scene.warn(name)
        scene.lose("nodeclaims", claim(name))
    scene.wait(60)
    scene.warn("b", seconds=60)
    scene.warn("b", seconds=61)
    assert scene.taken.storm.until(scene.now) is None
    scene.hear("nodeclaims", claim("c", phase="Initialized", labels=labels(), deleting=True))
    scene.warn("c", seconds=60)
    ends = [scene.taken.storm.until(one) for one in (scene.now, at(0) + LEAVES_WITHIN)]
    assert ends == [at(0) + LEAVES_WITHIN, None]


def test_nodes_whose_pods_go_first_make_a_storm_before_their_workflows_are_told(scene: Scene) -> None:
    names = [f"a{number}" for number in range(STORM)]
    scene.stand(*names)
    for name in names:
        assert scene.first_out(name) == [f"p-{name}"]
    assert scene.taken.storm.until(scene.now) == at(0) + LEAVES_WITHIN


def test_a_pool_that_takes_no_orders_makes_no_storm(scene: Scene) -> None:
    scene.rules = LifecycleRules.model_validate({"interruption": {"spotInterruption": {"action": "ignore"}}})
    names = [f"a{number}" for number in range(STORM)]
    scene.stand(*names)
    for name in names:
        scene.warn(name)
    assert scene.taken.storm.until(scene.now) is None


def test_a_storm_that_goes_on_is_told_anew(scene: Scene) -> None:
    names = [f"a{number}" for number in range(2 * STORM)]
    scene.stand(*names)
    for number, name in enumerate(names):
        scene.now = at(10 * number)
        scene.warn(name, seconds=10 * number)
    told = [one.storm for one in scene.told if one.storm]
    assert told[0] == at(0) + LEAVES_WITHIN and told[-1] >= at(100) + LEAVES_WITHIN - ANEW_AFTER
    assert all(later - before >= ANEW_AFTER for before, later in pairwise(dict.fromkeys(told)))


def test_what_aws_withdrew_takes_nothing(scene: Scene) -> None:
    scene.stand("a")
    scene.warn("a", status="withdrawn")
    scene.warn("a", status="over")
    assert scene.demand() == [] and not scene.told


def test_a_clock_that_is_behind_aws_s_marks_for_no_longer(scene: Scene) -> None:
    scene.stand("a")
    scene.warn("a", seconds=90)
    assert [one.until for one in scene.told[-1].unavailable] == [scene.now + timedelta(minutes=3)]


CALL = [{"name": "deregister", "http": {"url": "http://a.b"}}]


@pytest.mark.parametrize(
    ("kind", "rules", "expected"),
    [
        ("spotInterruption", None, ["p-a"]),
        ("capacityReservationInterruption", None, ["p-a"]),
        ("spotInterruption", {"interruption": {"spotInterruption": {"doNotDisrupt": "override"}}}, ["p-a"]),
        ("rebalanceRecommendation", None, None),
        ("rebalanceRecommendation", {"interruption": {"rebalanceRecommendation": {"action": "drain"}}}, None),
        ("scheduledChange", None, None),
        ("instanceStatus", None, None),
        ("spotInterruption", {"interruption": {"spotInterruption": {"action": "ignore"}}}, None),
        ("spotInterruption", {"interruption": {"spotInterruption": {"action": "terminate"}}}, None),
        ("spotInterruption", {"drain": {"surgeSingleReplicas": True}}, None),
        ("spotInterruption", {"hooks": {"beforeDrain": CALL}}, None),
        (
            "spotInterruption",
            {"hooks": {"afterDrain": CALL}},
            ["p-a"],
        ),
    ],
)
def test_pods_go_before_anybody_is_asked_where_nothing_is_to_be_asked(
    scene: Scene, kind: str, rules: dict[str, Any] | None, expected: list[str] | None
) -> None:
    scene.rules = LifecycleRules.model_validate(rules) if rules else None
    scene.stand("a")
    assert scene.first_out("a", kind) == expected


def test_the_first_of_them_are_those_that_a_drain_evicts_first(scene: Scene) -> None:
    scene.stand("a")
    more: dict[str, dict[str, Any]] = {
        "daemon": {"owner": "DaemonSet"},
        "critical": {"priorityClassName": "system-node-critical"},
        "kept": {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}},
        "ended": {"phase": "Succeeded"},
        "leaving": {"metadata": {"deletionTimestamp": at(0).isoformat()}},
        "static": {"owner": "Node"},
        "second": {},
    }
    for name, fields in more.items():
        scene.hear("pods", pod(name, on="n-a", **fields))
    assert scene.first_out("a") == ["p-a", "second"]
    for name in ("p-a", "second", "kept", "leaving"):
        scene.lose("pods", pod(name, on="n-a"))
    assert scene.first_out("a") == ["daemon"]
    scene.lose("pods", pod("daemon", on="n-a"))
    assert scene.first_out("a") == ["critical"]


def test_pods_of_a_node_that_goes_or_starts_or_was_left_standing_wait_for_its_workflow(scene: Scene) -> None:
    scene.stand("a", "b", "c")
    scene.hear("nodeclaims", claim("a", phase="Initialized", labels=labels(), deleting=True))
    scene.hear("nodeclaims", claim("b", phase="Registered", labels=labels()))
    scene.lose("nodes", node("n-c", of="c"))
    assert [scene.first_out(name) for name in "abc"] == [None, None, None]
    scene.stand("d")
    assert scene.first_out("d", status="withdrawn") is None
    scene.wait(LEAVES_WITHIN.total_seconds())
    assert scene.first_out("d") is None


def test_nobody_is_told_that_a_node_is_empty_whose_pods_were_told_to_go(scene: Scene) -> None:
    """Its workflow would ask for a permit; unless AWS leaves the node standing."""
    scene.stand("a")
    assert scene.first_out("a") == ["p-a"] and len(scene.told) == 1, "its pool is short from now on"
    assert scene.caches.evacuated == {"a"} and scene.taken.next == at(0) + LEAVES_WITHIN
    scene.caches.take_dirty()
    scene.wait(LEAVES_WITHIN.total_seconds())
    assert not scene.caches.evacuated and scene.caches.take_dirty().claims == {"a"}
    scene.stand("b")
    scene.now = at(0)
    assert scene.first_out("b") == ["p-b"]
    scene.lose("nodeclaims", claim("b"))
    assert not scene.caches.evacuated
