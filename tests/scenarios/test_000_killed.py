"""Promise 1, with the worker killed or away while a node empties."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import pytest

from kube.resources import NODES
from model import labels
from model.lifecycle import ClaimState, Phase
from sandbox.faults import Cut, Delay
from tests.integration.eventually import eventually
from tests.integration.product import Product
from tests.integration.scene import Scene, names, taints
from tests.scenarios.acts import AWAY, KILLED

LONG = timedelta(seconds=30)
"""consolidateAfter of a node that the worker does not see through."""


@pytest.mark.row("000-d")
@KILLED.scenario
async def test_a_worker_killed_between_marking_and_deleting_goes_on_and_deletes_once(
    product: Product,
) -> AsyncGenerator[None, None]:
    async with product.scene("000-d") as scene:
        (claim,) = await scene.run(1)
        path = f"/nodeclaims/{claim['metadata']['name']}"
        held = scene.api_fault(Cut(), f"{path}$", "DELETE")
        await scene.scale(0)
        await eventually(lambda: _marked(scene, claim["status"]["nodeName"]))
        await eventually(lambda: _struck(held.hits))
        yield
        await scene.claims_stand(names([claim]))
        scene.pardon(held)
        deletions = scene.api_fault(Delay(0), path, "DELETE")
        yield
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        assert deletions.hits == 1
        await scene.one_node_was_bought()


@pytest.mark.row("000-l")
@AWAY.scenario
async def test_the_time_of_an_empty_node_runs_on_without_a_worker(
    product: Product,
) -> AsyncGenerator[None, None]:
    async with product.scene("000-l", after=f"{LONG.total_seconds():g}s") as scene:
        (claim,) = await scene.run(1)
        await scene.scale(0)
        since = await eventually(lambda: _empty_since(scene))
        yield
        await asyncio.sleep((since + LONG - datetime.now(UTC)).total_seconds())
        await scene.claims_stand(names([claim]))
        started = datetime.now(UTC)
        yield
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        (life,) = await scene.lives()
        (drained,) = [step.at for step in (await product.lives.outcome(life)).story if step.phase is Phase.DRAIN]
        assert drained - started < LONG, "its time was counted from the worker's start"


async def _marked(scene: Scene, node: str) -> None:
    found = await scene.product.kube.request("GET", NODES.path(node))
    assert f"{labels.DISRUPTED_TAINT_KEY}:{labels.NO_SCHEDULE}" in taints(found), taints(found)


async def _struck(hits: int) -> None:
    assert hits, "nothing has been held up yet"


async def _empty_since(scene: Scene) -> datetime:
    (life,) = await scene.lives()
    handle = scene.product.temporal.get_workflow_handle(life.workflow_id)
    state: ClaimState = await handle.query("state", result_type=ClaimState)
    assert state.seen.empty and state.seen.empty_since, state.seen
    return state.seen.empty_since
