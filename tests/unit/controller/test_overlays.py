"""NodeOverlays in the process that hosts the watch: from the API server's objects to verdicts that are written once."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from tenure.controller import settings
from tenure.controller.disruption.status import OverlayVerdicts
from tenure.kube.client.resources import NODE_OVERLAYS
from tenure.model.errors import TryLater
from tenure.scheduling.nodeoverlays import HEEDED, Verdict
from tests.support.controller.builders import World, node_class, pool
from tests.unit.controller.test_planning import Stage

SMALL, LARGE = "m.large", "m.2xlarge"


class Told:
    """The port: what was said, and how often it is to fail."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.failures = 0

    async def say(self, name: str, uid: str, *, reason: str = "", message: str = "", now: datetime) -> bool:
        if self.failures:
            self.failures -= 1
            raise TryLater("told to fail")
        self.said.append((name, reason))
        return True


def overlay(name: str, *types: str, generation: int = 1, **spec: Any) -> dict[str, Any]:
    wanted = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)}] if types else []
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation}
    return {"metadata": metadata, "spec": {"requirements": wanted, **spec}}


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def stage(told: Told) -> AsyncIterator[Stage]:
    stage = Stage()
    stage.planning.filling.verdicts = OverlayVerdicts(stage.caches, told, lambda: stage.now)
    stage.hear("nodepools", pool())
    stage.hear("ec2nodeclasses", node_class())
    yield stage
    await stage.planning.close()


async def test_a_plan_goes_by_the_overlay_and_its_verdict_is_written_before(stage: Stage, told: Told) -> None:
    stage.want(1)
    stage.hear("nodeoverlays", overlay("cheap", LARGE, price="0.001"))
    outcome = await stage.plan()
    assert outcome.created == 1
    (claim,) = stage.claims.found.values()
    (types,) = [
        one["values"] for one in claim["spec"]["requirements"] if one["key"] == "node.kubernetes.io/instance-type"
    ]
    assert types[0] == LARGE
    assert claim["metadata"]["annotations"]["karpenter.sh/price-overlay-applied"] == "true"
    assert told.said == [("cheap", "")]


async def test_a_verdict_is_written_once_and_again_when_it_turns(stage: Stage, told: Told) -> None:
    stage.hear("nodeoverlays", overlay("b", SMALL, price="1"), overlay("a", price="2"))
    for _ in range(3):
        await stage.planning.feed()
    assert sorted(told.said) == [("a", "Conflict"), ("b", "")]
    stage.lose("nodeoverlays", overlay("b", SMALL, price="1"))
    await stage.planning.feed()
    assert told.said[2:] == [("a", "")]


async def test_what_could_not_be_written_is_written_next_time() -> None:
    world, told = World(), Told()
    world.hear("nodeoverlays", overlay("a"))
    verdicts = OverlayVerdicts(world.caches, told, lambda: world.now)
    told.failures = 1
    await verdicts.say({"a": HEEDED})
    await verdicts.say({"a": HEEDED})
    assert told.said == [("a", "")]
    world.hear("nodeoverlays", overlay("a", generation=2))
    await verdicts.say({"a": HEEDED, "gone": Verdict(reason="Conflict")})
    assert told.said == [("a", ""), ("a", "")]


def test_a_status_alone_is_no_change_for_the_planner() -> None:
    world = World()
    world.hear("nodeoverlays", overlay("a"))
    assert [one.key for one in world.caches.take_changes()] == ["a"]
    world.hear("nodeoverlays", overlay("a") | {"status": {"conditions": []}})
    assert world.caches.take_changes() == ()
    assert [one.key for one in world.caches.snapshot()] == ["a"]


def test_the_kind_is_watched_with_its_gate_alone() -> None:
    assert settings.kinds(()) == []
    assert settings.kinds({"NodeOverlay", "ReservedCapacity"}) == [NODE_OVERLAYS]
