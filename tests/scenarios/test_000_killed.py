"""Promise 1, with the worker killed or away while a node empties."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tenure.model.nodeclaim_state import Phase
from tenure.sandbox.fault_proxy import Cut, Delay
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names
from tests.support.product.shared_sandbox import FaultRule

NEVER = 3600.0
"""Seconds for which a request is held that the worker does not live to see done."""
LONG = timedelta(seconds=60)
"""consolidateAfter of a node that the worker does not see through; a worker stops, or starts, in much less."""


@pytest.mark.row("000-d")
async def test_a_worker_killed_between_marking_and_deleting_goes_on_and_deletes_once(
    own_product: OwnProduct,
) -> None:
    await own_product.work()
    async with own_product.scene("000-d") as scene:
        (claim,) = await scene.run(1)
        path, node = f"/nodeclaims/{claim['metadata']['name']}$", claim["status"]["nodeName"]
        held = scene.api_fault(Delay(NEVER), path, "DELETE")
        await scene.scale(0)
        await eventually(lambda: _is_marked_and_not_deleted(scene, node, held))
        stuck = scene.api_fault(Cut(), f"/nodes/{node}$", "PATCH")
        await own_product.kill()
        await scene.claims_stand(names([claim]))
        await scene.node_is_marked(node)
        scene.pardon(held)
        scene.pardon(stuck)
        deletions = scene.api_fault(Delay(0), path, "DELETE")
        await own_product.go_on()
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        assert deletions.hits == 1
        await scene.one_node_was_bought()


@pytest.mark.row("000-l")
async def test_the_time_of_an_empty_node_runs_on_without_a_worker(
    own_product: OwnProduct,
) -> None:
    await own_product.work()
    async with own_product.scene("000-l", after=f"{LONG.total_seconds():g}s") as scene:
        (claim,) = await scene.run(1)
        await scene.scale(0)
        since = await eventually(lambda: _empty_since(scene))
        await own_product.rest()
        await asyncio.sleep((since + LONG - datetime.now(UTC)).total_seconds())
        await scene.claims_stand(names([claim]))
        started = datetime.now(UTC)
        await own_product.go_on()
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        (life,) = await scene.lives()
        (drained,) = [step.at for step in (await own_product.lives.outcome(life)).story if step.phase is Phase.DRAIN]
        assert drained - started < LONG, "its time was counted from the worker's start"


async def _is_marked_and_not_deleted(scene: Scene, node: str, held: FaultRule) -> None:
    await scene.node_is_marked(node)
    assert held.hits, "the NodeClaim is not to be deleted yet"


async def _empty_since(scene: Scene) -> datetime:
    (life,) = await scene.lives()
    state = await scene.state(life.name)
    assert state.seen.empty and state.seen.empty_since, state.seen
    return state.seen.empty_since
