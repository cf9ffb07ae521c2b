"""Pods of a node that AWS takes back are told to go before its workflow is asked, and its drain does the rest."""

import asyncio

import pytest

from activities.nodeclaim.eviction import WITHIN, Evacuation, NodeEvacuation
from activities.ports.interruption import Leaving
from tenure.model.errors import BadInput, Fault, Throttled, TryLater
from tenure.model.nodeclaim_requests import DrainAsked
from tenure.model.provider_results import DrainPod, Eviction
from tests.unit.activities.builders import REF, Scene, performed


@pytest.fixture
def evacuation(scene: Scene) -> Evacuation:
    scene.running()
    for name in ("web", "api"):
        scene.pods.place("node-a", name)
    return Evacuation(scene.drained)


def leaving(scene: Scene, uid: str = "uid-node-a") -> Leaving:
    return Leaving(node="node-a", uid=uid, tainted=False, pods=tuple(scene.pods.by_node["node-a"]))


async def run(evacuation: Evacuation, leaving: Leaving) -> NodeEvacuation:
    found = evacuation.of(leaving)
    assert found is not None
    await performed(found.run, WITHIN)
    return found


async def test_the_node_is_out_of_service_before_its_pods_go_and_the_drain_does_the_rest(
    scene: Scene, evacuation: Evacuation
) -> None:
    found = await run(evacuation, leaving(scene))
    assert [*found.pods] == ["default/web", "default/api"]
    assert scene.out_of_service() and scene.pods.evicted == ["web", "api"]
    assert "Evicted" not in scene.events.reasons("web")
    await found.tell()
    assert scene.events.reasons("web") == ["Evicted"]
    assert (await performed(scene.draining.drain_node, DrainAsked(claim=REF))).outcome == "drained"
    assert scene.pods.evicted == ["web", "api"]


async def test_what_is_repeated_is_not_done_again(scene: Scene, evacuation: Evacuation) -> None:
    first = leaving(scene)
    await run(evacuation, first)
    assert evacuation.of(first) is None
    assert scene.pods.evicted == ["web", "api"]


def test_a_node_without_pods_to_go_is_left_to_its_drain(evacuation: Evacuation) -> None:
    assert evacuation.of(Leaving(node="node-a", uid="uid-node-a", tainted=False, pods=())) is None


async def test_another_node_of_the_same_name_keeps_its_pods(scene: Scene, evacuation: Evacuation) -> None:
    assert not (await run(evacuation, leaving(scene, uid="uid-of-before"))).pods
    assert not scene.out_of_service() and scene.pods.evicted == []


async def test_a_pod_that_a_budget_holds_is_left_to_the_drain(scene: Scene, evacuation: Evacuation) -> None:
    scene.pods.blocked["web"] = "web needs 1 healthy pods and has 1 currently"
    assert [*(await run(evacuation, leaving(scene))).pods] == ["default/api"]


@pytest.mark.parametrize("fault", [TryLater("503"), BadInput("422"), Throttled("429")])
async def test_what_goes_wrong_is_the_drains_to_try_again(scene: Scene, evacuation: Evacuation, fault: Fault) -> None:
    scene.pods.faults["evict"] = [None, fault]
    assert [*(await run(evacuation, leaving(scene))).pods] == ["default/web"]
    scene.nodes.faults["mark_evacuated"] = [fault]
    assert not (await run(Evacuation(scene.drained), leaving(scene))).pods


async def test_an_api_server_that_hangs_holds_up_the_word_for_a_few_seconds_only(
    scene: Scene, evacuation: Evacuation, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict = scene.pods.evict

    async def hangs(pod: DrainPod) -> Eviction:
        return await evict(pod) if pod.name == "web" else await asyncio.Future()

    monkeypatch.setattr(scene.pods, "evict", hangs)
    found = evacuation.of(leaving(scene))
    assert found is not None
    await performed(found.run, 0.05)
    assert [*found.pods] == ["default/web"]


async def test_events_that_cannot_be_said_keep_nothing_from_being_told(
    scene: Scene, evacuation: Evacuation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await run(evacuation, leaving(scene))

    async def refuse(**said: object) -> None:
        raise TryLater("503")

    monkeypatch.setattr(scene.events, "publish", refuse)
    await found.tell()
