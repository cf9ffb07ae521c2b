"""When NodePools are told that their budgets may leave more than before."""

from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.dirty import Dirty
from tenure.controller.signals.disruption_trigger import Rooms
from tenure.model.facts import ClaimFact
from tests.support.controller.builders import World, claim, node, pod, pool


class Scene(World):
    """A NodePool `general` with three nodes: a and b run pods, c is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: dict[str, LifecycleRules] = {}
        self.drifted: set[str] = set()
        self.rooms = Rooms(self.caches, rules_of=self.rules.get, drifted=self._has_drifted)
        self.hear("nodepools", pool("general"), pool("gpu"))
        for name in "abc":
            self.stands(name)
        self.hear("pods", *(pod(f"on-{name}", on=f"node-{name}") for name in "ab"))
        self.told()

    def _has_drifted(self, one: ClaimFact) -> bool:
        return one.name in self.drifted

    def stands(self, name: str, *, pool: str = "general", phase: str = "Initialized", **more: Any) -> None:
        self.hear("nodeclaims", claim(name, phase=phase, pool=pool, **more))
        self.hear("nodes", node(f"node-{name}", of=name))

    def told(self) -> set[str]:
        """The NodePools that are told anew."""
        before = {name: self.rooms.freed(name) for name in self.caches.pools}
        dirty = self.caches.take_dirty()
        others, dirty.pools = dirty.pools, set()
        self.rooms.look(dirty, known=True)
        assert dirty.pools == {name for name in self.caches.pools if self.rooms.freed(name) != before[name]}
        assert others | dirty.pools >= dirty.pools
        return dirty.pools


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_node_that_is_ready_again_leaves_room(scene: Scene) -> None:
    scene.hear("nodes", node("node-a", of="a", ready=False))
    assert scene.told() == set()
    scene.hear("nodes", node("node-a", of="a"))
    assert scene.told() == {"general"}
    assert scene.told() == set()


def test_a_node_that_is_put_back_leaves_room(scene: Scene) -> None:
    tainted = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    scene.hear("nodes", node("node-a", of="a", taints=tainted))
    assert scene.told() == set()
    scene.hear("nodes", node("node-a", of="a"))
    assert scene.told() == {"general"}


def test_a_new_node_makes_shares_greater_once_it_is_initialized(scene: Scene) -> None:
    scene.stands("d", phase="Registered")
    assert scene.told() == set()
    scene.stands("d")
    assert scene.told() == {"general"}


def test_a_node_that_goes_leaves_room_when_it_is_not_counted_any_more(scene: Scene) -> None:
    scene.hear("nodeclaims", claim("a", phase="Initialized", deleting=True))
    assert scene.told() == set()
    going = claim("a", phase="Initialized", deleting=True)
    terminating = {"type": "InstanceTerminating", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    going["status"]["conditions"].append(terminating)
    scene.hear("nodeclaims", going)
    assert scene.told() == {"general"}
    scene.lose("nodeclaims", going)
    assert scene.told() == set(), "it did not count before"


def test_a_node_that_is_gone_at_once_leaves_room(scene: Scene) -> None:
    going = claim("a", phase="Initialized", deleting=True)
    scene.hear("nodeclaims", going)
    scene.told()
    scene.lose("nodeclaims", going)
    assert scene.told() == {"general"}


def test_nobody_is_told_where_no_node_may_wish_to_go(scene: Scene) -> None:
    scene.hear("pods", pod("on-c", on="node-c"))
    scene.hear("nodes", node("node-a", of="a", ready=False))
    scene.told()
    scene.hear("nodes", node("node-a", of="a"))
    assert scene.told() == set()
    scene.drifted.add("b")
    scene.hear("nodes", node("node-a", of="a", ready=False))
    scene.told()
    scene.hear("nodes", node("node-a", of="a"))
    assert scene.told() == {"general"}


def test_other_pools_are_told_where_their_rules_count_all_nodes(scene: Scene) -> None:
    scene.stands("g", pool="gpu")
    scene.told()
    flaps = (node("node-a", of="a", ready=False), node("node-a", of="a"))
    for one in flaps:
        scene.hear("nodes", one)
        told = scene.told()
    assert told == {"general"}
    scene.rules["gpu"] = LifecycleRules.model_validate({"disruption": {"clusterNodes": "1"}})
    for one in flaps:
        scene.hear("nodes", one)
        told = scene.told()
    assert told == {"general", "gpu"}


def test_what_was_there_when_the_watch_began_is_no_news() -> None:
    scene = Scene()
    assert scene.rooms.freed("general") == 0


def test_nothing_is_judged_before_everything_is_known(scene: Scene) -> None:
    rooms = Rooms(scene.caches, rules_of=scene.rules.get, drifted=lambda one: False)
    rooms.look(Dirty(claims={"a"}), known=False)
    scene.hear("nodes", node("node-a", of="a", ready=False))
    rooms.look(scene.caches.take_dirty(), known=True)
    assert rooms.freed("general") == 0
    scene.hear("nodes", node("node-a", of="a"))
    rooms.look(scene.caches.take_dirty(), known=True)
    assert rooms.freed("general") > 0
