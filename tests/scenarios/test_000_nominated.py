"""Promise 1, for a node that pods are expected on and never come to."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tenure.controller.cache.nominations import VALID
from tenure.kube.client.resources import PODS
from tenure.model.nodeclaim_state import Phase
from tests.support.product.eventually import eventually
from tests.support.product.objects import pod_spec
from tests.support.product.product import Product
from tests.support.product.scene import Scene, names

AFTER = timedelta(seconds=3)
EVERY = 3.0
"""Seconds between pods that are nominated."""
TIMES = 5
SLACK = timedelta(seconds=60)


@pytest.mark.row("000-g")
async def test_a_node_that_pods_are_nominated_to_stays_and_goes_after_the_last_of_them(product: Product) -> None:
    """The kube-scheduler is not asked about these pods, so that they are expected on the node and never run there."""
    async with product.scene("000-g", after=f"{AFTER.total_seconds():g}s") as scene:
        (claim,) = await scene.run(1)
        await _phantom(scene, 0)
        await eventually(lambda: _nominated(scene, 0, claim["metadata"]["name"]))
        await scene.scale(0)
        for number in range(1, TIMES):
            await asyncio.sleep(EVERY)
            await _phantom(scene, number)
            await eventually(partial(_nominated, scene, number, claim["metadata"]["name"]))
            await scene.product.delete(_path(scene, number - 1))
            await scene.claims_stand(names([claim]))
        last = await eventually(lambda: _nominated(scene, TIMES - 1, claim["metadata"]["name"]))
        await scene.product.delete(_path(scene, TIMES - 1))
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        (life,) = await scene.lives()
        outcome = await product.lives.outcome(life)
        (drained,) = [step.at for step in outcome.story if step.phase is Phase.DRAIN]
        assert outcome.reason == "Empty"
        assert AFTER <= drained - last <= VALID + AFTER + SLACK
        await scene.one_node_was_bought()


async def _phantom(scene: Scene, number: int) -> None:
    """A pod that asks for the node's room and that no scheduler places; that nobody could, is said in its place."""
    spec = pod_spec(scene.name, cpu="100m") | {"schedulerName": "nobody"}
    name = f"{scene.name}-phantom-{number}"
    await scene.make(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    stamps = {"lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    await scene.product.patch_status(_path(scene, number), {"conditions": [refused | stamps]})


def _path(scene: Scene, number: int) -> str:
    return PODS.path(f"{scene.name}-phantom-{number}", namespace="default")


async def _nominated(scene: Scene, number: int, claim: str) -> datetime:
    """When the pod was told that it is expected there."""
    told = await scene.event(f"{scene.name}-phantom-{number}", "Nominated", claim)
    return datetime.fromisoformat(told["firstTimestamp"])
