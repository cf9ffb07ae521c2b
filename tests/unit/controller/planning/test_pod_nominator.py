"""Which pods are told where they are expected, and when."""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from tenure.apis.labels import NOMINATED
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.pod_nominator import MAX_NOMINATIONS, PodNominator
from tenure.model.errors import Forbidden
from tenure.model.facts import PodFact
from tests.support.controller import builders
from tests.support.controller.builders import CacheHarness
from tests.support.fakes.event_loop import run_pending_tasks

ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}


class FakeNominationPort:
    """Remembers what it was told; `forbidden` with Forbidden instead."""

    def __init__(self, *, forbidden: bool = False) -> None:
        self.nominated: list[tuple[str, str]] = []
        self._forbidden = forbidden

    async def nominate(self, pod: PodFact, node: str, *, now: datetime) -> bool:
        self.nominated.append((pod.name, node))
        if self._forbidden:
            raise Forbidden("no")
        return True


class NominatorHarness:
    """A NodeClaim `c1` that expects the pods `apart` and `plain`."""

    def __init__(self, *, forbidden: bool = False) -> None:
        self.cluster, self.nominations = CacheHarness(), Nominations()
        self.port = FakeNominationPort(forbidden=forbidden)
        self.pod_nominator = PodNominator(self.cluster.cache, self.nominations, self.port, lambda: self.cluster.now)
        self.cluster.apply_objects("pods", self.pod(), builders.pod("plain"))
        self.cluster.apply_objects("nodeclaims", builders.claim("c1", phase="Launched"))
        self.nominations.nominate({"uid-apart": "c1", "uid-plain": "c1"}, self.cluster.now)

    def pod(self, *, nominated_node: str = "", preempting: str = "", on: str = "") -> dict[str, Any]:
        raw = builders.pod("apart", on=on, affinity=ANTI_AFFINITY)
        if nominated_node or preempting:
            raw["status"]["nominatedNodeName"] = nominated_node or preempting
        if nominated_node:
            raw["status"].setdefault("conditions", []).append(
                {"type": NOMINATED, "status": "True", "message": nominated_node}
            )
        return raw

    def add_node(self) -> None:
        self.cluster.apply_objects("nodes", builders.node("n1", of="c1", ready=False))

    async def update(self, *claims: str) -> list[tuple[str, str]]:
        """What was told since the last look."""
        before = len(self.port.nominated)
        self.pod_nominator.update(claims)
        running = asyncio.create_task(self.pod_nominator.run())
        await run_pending_tasks()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return self.port.nominated[before:]


async def test_a_pod_that_keeps_apart_is_told_once_its_node_is_there() -> None:
    harness = NominatorHarness()
    assert await harness.update("c1") == []
    harness.add_node()
    assert await harness.update("c1") == [("apart", "n1")]


async def test_a_pod_that_the_scheduler_tried_too_early_is_told_again_but_not_for_ever() -> None:
    harness = NominatorHarness()
    harness.add_node()
    nominated = list[tuple[str, str]]()
    for _ in range(MAX_NOMINATIONS + 3):
        nominated += await harness.update() if nominated else await harness.update("c1")
        harness.cluster.apply_objects("pods", harness.pod(nominated_node="n1"))
        harness.cluster.apply_objects("pods", harness.pod())
    assert nominated == [("apart", "n1")] * MAX_NOMINATIONS


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("pods", {"nominated_node": "n1"}),
        ("pods", {"preempting": "elsewhere"}),
        ("pods", {"on": "other"}),
        ("nodeclaims", {}),
    ],
    ids=["nominated already", "others are preempted for it", "bound", "its claim goes"],
)
async def test_who_is_not_told(kind: str, changed: dict[str, str]) -> None:
    harness = NominatorHarness()
    harness.add_node()
    terminating = builders.claim("c1", phase="Launched", deleting=True)
    harness.cluster.apply_objects(kind, harness.pod(**changed) if kind == "pods" else terminating)
    assert await harness.update("c1") == []


async def test_without_the_right_it_is_tried_once() -> None:
    harness = NominatorHarness(forbidden=True)
    harness.add_node()
    harness.pod_nominator.update(["c1"])
    await asyncio.wait_for(harness.pod_nominator.run(), 60)
    assert harness.port.nominated == [("apart", "n1")]


def test_a_pod_that_a_plan_expects_somewhere_is_demand_like_any_other() -> None:
    harness = NominatorHarness()
    harness.cluster.apply_objects("pods", harness.pod(nominated_node="n1"))
    pod = harness.cluster.cache.pending["uid-apart"]
    assert (pod.expected_on, pod.nominated_node) == ("n1", "")
