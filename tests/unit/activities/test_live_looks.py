"""The last look before what cannot be undone: at this very Node, this very instance, and who still needs them."""

import asyncio
from datetime import UTC, datetime

import pytest

from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.model.nodeclaim_requests import DisruptionAsked, DrainAsked
from tests.unit.activities.builders import REF, Scene, performed

EMPTY = DisruptionAsked(claim=REF, reason="Empty")
OTHER = "aws:///us-west-2a/i-9999"


def renamed(scene: Scene) -> None:
    """The Node of the claim is gone, and its address, and so its name, belongs to another instance."""
    scene.nodes.join("node-a", OTHER)
    scene.nodes.change("node-a", taints=())


async def test_a_node_that_took_over_the_name_is_not_drained(scene: Scene) -> None:
    scene.running()
    renamed(scene)
    scene.pods.place("node-a", "web")
    assert (await performed(scene.draining.drain_node, DrainAsked(claim=REF))).outcome == "drained"
    assert scene.pods.evicted == [] and not scene.nodes.found["node-a"].deleting and not scene.out_of_service()


async def test_a_node_that_took_over_the_name_is_not_tainted(scene: Scene) -> None:
    scene.running()
    renamed(scene)
    await performed(scene.disruption.disrupt_claim, EMPTY)
    assert not scene.out_of_service()


async def test_a_node_in_use_is_not_even_tainted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.running()
    scene.pods.place("node-a", "web")
    tainted: list[str] = []
    mark = scene.nodes.mark_disrupted

    async def noting(name: str) -> object:
        tainted.append(name)
        return await mark(name)

    monkeypatch.setattr(scene.nodes, "mark_disrupted", noting)
    answer = await performed(scene.disruption.disrupt_claim, EMPTY)
    assert answer.outcome == "not now" and tainted == []


async def test_a_pod_that_may_not_be_disrupted_keeps_a_node_that_is_empty_but_for_daemons(scene: Scene) -> None:
    """Reference 4.2: pods of DaemonSets count too, those that are ending do not."""
    scene.running()
    scene.pods.place("node-a", "backup", reschedulable=False, waits=False, protected=True)
    answer = await performed(scene.disruption.disrupt_claim, EMPTY)
    assert answer.outcome == "not now" and DO_NOT_DISRUPT in answer.why and "default/backup" in answer.why
    scene.pods.by_node["node-a"].clear()
    scene.pods.place("node-a", "ending", reschedulable=False, protected=True, deletion=datetime.now(UTC))
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "deleting"


async def test_a_dead_node_whose_instance_is_gone_is_not_waited_for(scene: Scene) -> None:
    """Reference 3.13: nobody is there who could end its pods, and their budget may never allow it."""
    scene.running(ready=False)
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = "PodDisruptionBudget web: 0 disruptions allowed"
    scene.instances.running.clear()
    assert (await performed(scene.draining.drain_node, DrainAsked(claim=REF))).outcome == "drained"


async def test_a_node_that_is_not_ready_is_drained_while_its_instance_runs(scene: Scene) -> None:
    scene.running(ready=False)
    scene.pods.place("node-a", "web")
    await performed(scene.draining.drain_node, DrainAsked(claim=REF))
    assert scene.pods.evicted == ["web"]


async def test_pods_that_end_one_after_the_other_are_one_wait(scene: Scene) -> None:
    scene.running()
    for number in range(6):
        ending = {"evictable": False, "why_not": "terminating", "deletion": datetime.now(UTC)}
        scene.pods.place("node-a", f"web-{number}", **ending)

    async def end() -> None:
        while scene.pods.by_node["node-a"]:
            await asyncio.sleep(0.01)
            scene.pods.by_node["node-a"].pop()

    ending_pods = asyncio.create_task(end())
    assert (await performed(scene.draining.drain_node, DrainAsked(claim=REF))).outcome == "drained"
    await ending_pods
    assert scene.events.said == []


async def test_pods_that_are_slow_to_end_are_named_when_patience_is_over(scene: Scene) -> None:
    scene.running()
    scene.pods.place("node-a", "web", evictable=False, why_not="terminating", deletion=datetime.now(UTC))
    answer = await performed(scene.draining.drain_node, DrainAsked(claim=REF, patience=0))
    assert answer.outcome == "waiting" and answer.blockers == "pods are ending: default/web"
