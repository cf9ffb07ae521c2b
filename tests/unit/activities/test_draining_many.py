"""Hundreds of drains at once: every node's pods are asked to go at once, and looking again leaves room for others."""

import asyncio
import time

import pytest

from activities.nodeclaim.drain import LOOK_COSTS, DrainActivities
from activities.ports.core import DrainPod, Eviction
from tenure.model.nodeclaim_requests import ClaimRef, DrainAsked
from tests.unit.activities.builders import PROVIDER, Scene, performed

NODES = 30
QPS = 900.0
PATIENCE = 0.8


async def test_held_drains_leave_most_of_the_api_servers_request_rate_to_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain.SETTLED", 60.0)
    names = [f"n{number}" for number in range(NODES)]
    draining, pods = DrainActivities(scene.drained, qps=QPS), scene.pods
    for name in names:
        scene.running(name)
        pods.place(f"node-{name}", f"pod-{name}")
        pods.blocked[f"pod-{name}"] = "PodDisruptionBudget web: 0 disruptions allowed"
    looks: list[float] = []
    on_node = pods.on_node
    began = time.monotonic()

    async def counted(node: str, **more: object) -> list[DrainPod]:
        looks.append(time.monotonic() - began)
        return list(await on_node(node, **more))  # type: ignore[arg-type]

    pods.on_node = counted  # type: ignore[method-assign,assignment]
    answers = await asyncio.gather(*(performed(draining.drain_node, _asked(name)) for name in names))
    assert {one.outcome for one in answers} == {"waiting"}
    assert looks[NODES - 1] < PATIENCE, "the first look waits for nobody"
    # Each looks once more when its patience is over.
    assert NODES < len(looks) <= 2 * NODES + PATIENCE * QPS / 2 / LOOK_COSTS


@pytest.mark.parametrize("stuck", [False, True], ids=["all are pushed", "one is not for a while"])
async def test_pods_of_all_nodes_are_told_to_go_before_any_nodeclaim_is_deleted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, stuck: bool
) -> None:
    monkeypatch.setattr("activities.nodeclaim.eviction.OTHERS_FIRST", 5.0)
    names = [f"n{number}" for number in range(20)]
    draining, pods, done = _draining(scene), scene.pods, list[str]()
    for name in names:
        scene.running(name)
        pods.place(f"node-{name}", f"pod-{name}")
        pods.blocked[f"pod-{name}"] = "PodDisruptionBudget web: 0 disruptions allowed"
    evict, delete = pods.evict, scene.claims.delete
    begun = asyncio.Event()

    async def evicted(pod: DrainPod) -> Eviction:
        if stuck and pod.name == "pod-n7":
            await begun.wait()
        await asyncio.sleep(0.001 * len(done))
        done.append(f"pods of {pod.name}")
        return await evict(pod)

    async def deleted(name: str, uid: str) -> bool:
        done.append(name)
        begun.set()
        return await delete(name, uid)

    pods.evict, scene.claims.delete = evicted, deleted  # type: ignore[method-assign]
    await asyncio.gather(*(performed(draining.drain_node, _asked(name, 0.5)) for name in names))
    first = min(done.index(name) for name in names)
    told = {name for name in names if done.index(f"pods of pod-{name}") < first}
    assert told == set(names) - ({"n7"} if stuck else set())


async def test_a_few_drains_look_as_often_as_ever(scene: Scene) -> None:
    scene.running("a")
    scene.pods.place("node-a", "web")
    began = time.monotonic()
    assert (await performed(_draining(scene).drain_node, _asked("a", 60))).outcome == "drained"
    assert time.monotonic() - began < 60 / 2, "it looked at its end alone"


def _asked(name: str, patience: float = PATIENCE) -> DrainAsked:
    ref = ClaimRef(name=name, uid=f"uid-{name}", node_name=f"node-{name}", provider_id=PROVIDER)
    return DrainAsked(claim=ref, patience=patience)


def _draining(scene: Scene) -> DrainActivities:
    return DrainActivities(scene.drained, qps=20.0)
