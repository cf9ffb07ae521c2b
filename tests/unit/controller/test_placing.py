"""Which pods are told where they are expected, and when."""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any

from tenure.apis.labels import NOMINATED
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.pod_nominator import MOST_TIMES, Placing
from tenure.model.errors import Forbidden
from tenure.model.facts import PodFact
from tests.support.controller import builders
from tests.support.controller.builders import World
from tests.support.fakes.turns import turns

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}


class Nominator:
    """Remembers what it was told; `refusing` with Forbidden instead."""

    def __init__(self, *, refusing: bool = False) -> None:
        self.said: list[tuple[str, str]] = []
        self._refusing = refusing

    async def nominate(self, pod: PodFact, node: str, *, now: datetime) -> bool:
        self.said.append((pod.name, node))
        if self._refusing:
            raise Forbidden("no")
        return True


class Scene:
    """A NodeClaim `c1` that expects the pods `apart` and `plain`."""

    def __init__(self, *, refusing: bool = False) -> None:
        self.world, self.nominations = World(), Nominations()
        self.nominator = Nominator(refusing=refusing)
        self.placing = Placing(self.world.caches, self.nominations, self.nominator, lambda: self.world.now)
        self.world.hear("pods", self.pod(), builders.pod("plain"))
        self.world.hear("nodeclaims", builders.claim("c1", phase="Launched"))
        self.nominations.renew({"uid-apart": "c1", "uid-plain": "c1"}, self.world.now)

    def pod(self, *, said: str = "", preempting: str = "", on: str = "") -> dict[str, Any]:
        raw = builders.pod("apart", on=on, affinity=APART)
        if said or preempting:
            raw["status"]["nominatedNodeName"] = said or preempting
        if said:
            raw["status"].setdefault("conditions", []).append({"type": NOMINATED, "status": "True", "message": said})
        return raw

    def node_comes(self) -> None:
        self.world.hear("nodes", builders.node("n1", of="c1", ready=False))

    async def look(self, *claims: str) -> list[tuple[str, str]]:
        """What was told since the last look."""
        before = len(self.nominator.said)
        self.placing.look(claims)
        running = asyncio.create_task(self.placing.run())
        await turns()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return self.nominator.said[before:]


async def test_a_pod_that_keeps_apart_is_told_once_its_node_is_there() -> None:
    scene = Scene()
    assert await scene.look("c1") == []
    scene.node_comes()
    assert await scene.look("c1") == [("apart", "n1")]


async def test_a_pod_that_was_told_is_not_told_again() -> None:
    scene = Scene()
    scene.node_comes()
    await scene.look("c1")
    scene.world.hear("pods", scene.pod(said="n1"))
    assert await scene.look("c1") == []


async def test_a_pod_that_the_scheduler_tried_too_early_is_told_again_but_not_for_ever() -> None:
    scene = Scene()
    scene.node_comes()
    told = list[tuple[str, str]]()
    for _ in range(MOST_TIMES + 3):
        told += await scene.look() if told else await scene.look("c1")
        scene.world.hear("pods", scene.pod(said="n1"))
        scene.world.hear("pods", scene.pod())
    assert told == [("apart", "n1")] * MOST_TIMES


async def test_a_pod_for_which_others_are_preempted_is_left_to_the_scheduler() -> None:
    scene = Scene()
    scene.node_comes()
    scene.world.hear("pods", scene.pod(preempting="elsewhere"))
    assert await scene.look("c1") == []


async def test_a_pod_that_is_bound_is_not_told() -> None:
    scene = Scene()
    scene.node_comes()
    scene.world.hear("pods", scene.pod(on="other"))
    assert await scene.look("c1") == []


async def test_a_claim_that_goes_tells_nobody() -> None:
    scene = Scene()
    scene.node_comes()
    scene.world.hear("nodeclaims", builders.claim("c1", phase="Launched", deleting=True))
    assert await scene.look("c1") == []


async def test_without_the_right_it_is_tried_once() -> None:
    scene = Scene(refusing=True)
    scene.node_comes()
    scene.placing.look(["c1"])
    await asyncio.wait_for(scene.placing.run(), 60)
    assert scene.nominator.said == [("apart", "n1")]


def test_a_pod_that_a_plan_expects_somewhere_is_demand_like_any_other() -> None:
    scene = Scene()
    scene.world.hear("pods", scene.pod(said="n1"))
    pod = scene.world.caches.pending["uid-apart"]
    assert (pod.expected_on, pod.nominated_node) == ("n1", "")
