"""Pods that are nominated to their expected node, and when."""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from tenure.apis.labels import NOMINATED
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.pod_nominator import DENIED_SECONDS, MAX_NOMINATIONS, PodNominator
from tenure.model.errors import Forbidden
from tenure.model.facts import PodFact
from tests.support.controller import builders
from tests.support.controller.builders import CacheHarness
from tests.support.fakes.event_loop import run_pending_tasks
from tests.support.virtual_time import in_virtual_time

ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}


class FakeNominationPort:
    """Records nominations. With `forbidden` each call raises Forbidden."""

    def __init__(self, *, forbidden: bool = False) -> None:
        self.nominated: list[tuple[str, str]] = []
        self._forbidden = forbidden

    async def nominate(self, pod: PodFact, node: str, *, now: datetime) -> bool:
        self.nominated.append((pod.name, node))
        if self._forbidden:
            raise Forbidden("no")
        return True


class NominatorHarness:
    """The pods `apart` (with anti-affinity) and `plain` are nominated for NodeClaim `c1`."""

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
        """Nominations of this update."""
        before = len(self.port.nominated)
        self.pod_nominator.update(claims)
        running = asyncio.create_task(self.pod_nominator.run())
        await run_pending_tasks()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return self.port.nominated[before:]


async def test_anti_affinity_pod_is_nominated_once_its_node_exists() -> None:
    harness = NominatorHarness()
    assert await harness.update("c1") == []
    harness.add_node()
    assert await harness.update("c1") == [("apart", "n1")]


async def test_lost_nomination_is_repeated_a_limited_number_of_times() -> None:
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
    ids=["already nominated", "preempting", "bound", "deleting NodeClaim"],
)
async def test_pod_is_not_nominated(kind: str, changed: dict[str, str]) -> None:
    harness = NominatorHarness()
    harness.add_node()
    terminating = builders.claim("c1", phase="Launched", deleting=True)
    harness.cluster.apply_objects(kind, harness.pod(**changed) if kind == "pods" else terminating)
    assert await harness.update("c1") == []


@in_virtual_time
async def test_nominator_pauses_after_forbidden() -> None:
    harness = NominatorHarness(forbidden=True)
    harness.add_node()
    running = asyncio.create_task(harness.pod_nominator.run())
    for _ in range(3):
        harness.pod_nominator.update(["c1"])
        await asyncio.sleep(DENIED_SECONDS / 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert harness.port.nominated == [("apart", "n1")] * 2


def test_pod_nominated_by_tenure_remains_pending() -> None:
    harness = NominatorHarness()
    harness.cluster.apply_objects("pods", harness.pod(nominated_node="n1"))
    pod = harness.cluster.cache.pending["uid-apart"]
    assert (pod.expected_on, pod.nominated_node) == ("n1", "")
