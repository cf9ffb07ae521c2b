"""Temporal or the API server is away for a while: nodes keep running, nothing is disrupted, all goes on afterwards.

`TENURE_OUTAGE` is Temporal's outage in seconds; the API server's is half of it. `make chaos` takes the full 120, and
one after the other; by default both are away at once, for as long as tells something.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure.apis import labels
from tenure.controller.cache.nominations import VALID
from tenure.kube.client.resources import NODE_CLAIMS, PODS
from tenure.model.nodeclaim_state import Phase
from tenure.sandbox.nodes.fault_rules import SlowBoot
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names

TEMPORAL, API_SERVER, SCHEDULER = "temporal", "kube-apiserver", "kube-scheduler"
SECONDS = float(os.environ.get("TENURE_OUTAGE", "30"))
PATIENCE = 150.0 + SECONDS
SLOWLY = 20.0
"""Seconds more until a node is there: by then the kube-scheduler is away."""
pytestmark = pytest.mark.timeout(600 + 3 * SECONDS)
at_length = pytest.mark.skipif("TENURE_OUTAGE" not in os.environ, reason="make chaos takes one after the other")


@at_length
async def test_while_temporal_is_away_nodes_run_and_pods_wait(product: OwnProduct) -> None:
    async with _lives(product) as (steady, grows, drains):
        async with _outage(product, TEMPORAL):
            await grows.scale(2)
            await _steadfast(steady, SECONDS)
        await _all_goes_on(steady, grows, drains)


@at_length
async def test_while_the_api_server_is_away_nodes_run_and_launches_wait(product: OwnProduct) -> None:
    async with _lives(product) as (steady, grows, drains):
        await grows.scale(2)
        await eventually(lambda: grows.newest_claim(2))
        async with _outage(product, API_SERVER):
            await asyncio.sleep(SECONDS / 2)
            assert len(steady.alive()) == 1
        await _all_goes_on(steady, grows, drains)


async def test_while_both_are_away_at_once_nodes_run(product: OwnProduct) -> None:
    async with _lives(product) as (steady, grows, drains):
        await grows.scale(2)
        async with _outage(product, TEMPORAL):
            async with _outage(product, API_SERVER):
                await asyncio.sleep(SECONDS / 2)
            await asyncio.sleep(SECONDS / 2)
            assert len(steady.alive()) == 1
        await _all_goes_on(steady, grows, drains)


@pytest.mark.row("001-k")
async def test_while_the_kube_scheduler_is_away_a_node_that_came_up_waits_for_its_pod(product: OwnProduct) -> None:
    """For longer than a plan's answer is good for, in a pool whose empty nodes go after a second; it says whom for."""
    await product.work()
    async with product.scene("unplaced") as scene:
        await scene.trouble(SlowBoot(seconds=SLOWLY))
        await scene.deploy(1)
        await eventually(lambda: scene.newest_claim(1))
        async with _outage(product, SCHEDULER):
            (claim,) = await eventually(lambda: scene.nodes_are_initialized(1))
            await throughout(lambda: _is_ready(scene, claim["metadata"]["name"]), seconds=3 * VALID.total_seconds())
            await eventually(lambda: scene.is_blocked_by(claim["metadata"]["name"], "not bound by kube-scheduler"))
            await eventually(lambda: product.metric("tenure_pods_not_bound", nodepool=scene.name))
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()
        await eventually(lambda: _is_held_by_nothing(scene, claim["metadata"]["name"]))


async def _is_held_by_nothing(scene: Scene, claim: str) -> None:
    assert not (await scene.life(claim)).blocked_by


async def _is_ready(scene: Scene, claim: str) -> None:
    """And is the only one."""
    assert await scene.newest_claim(1) == claim
    assert (await scene.state(claim)).phase is Phase.READY


@asynccontextmanager
async def _lives(product: OwnProduct) -> AsyncIterator[tuple[Scene, Scene, Scene]]:
    """A node that runs, one whose pool is to grow, and one whose drain is held up; the worker lives through it all."""
    worker = await product.work()
    async with product.scene("steady") as steady, product.scene("grows") as grows, product.scene("drains") as drains:
        await asyncio.gather(steady.run(1), grows.run(1), drains.run(1))
        await _hold(drains, "true")
        (claim,) = await drains.claims()
        await product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        await eventually(lambda: _drains(drains))
        yield steady, grows, drains
        assert product.worker is worker and worker.running, f"the worker ended, see {worker.log}"


@asynccontextmanager
async def _outage(product: OwnProduct, part: str) -> AsyncIterator[None]:
    await asyncio.to_thread(product.own_sandbox.stop_part, part)
    try:
        yield
    finally:
        await asyncio.to_thread(product.own_sandbox.start_part, part)


async def _steadfast(scene: Scene, seconds: float) -> None:
    before = [pod["metadata"]["uid"] for pod in await scene.pods()]

    async def runs() -> None:
        await scene.pods_run(1)
        assert [pod["metadata"]["uid"] for pod in await scene.pods()] == before, f"{scene.name} has other pods"

    await throughout(runs, seconds=seconds)


async def _all_goes_on(steady: Scene, grows: Scene, drains: Scene) -> None:
    """The pod gets its one node; the drain is still held, and ends once it is let go; what ran runs."""
    await eventually(lambda: grows.pods_run(2), seconds=PATIENCE)
    await eventually(lambda: grows.nodes_are_initialized(2), seconds=PATIENCE)
    await grows.nodes_were_bought(2)
    drained = names(await drains.claims())[0]
    await eventually(lambda: _drains(drains), seconds=PATIENCE)
    await _hold(drains, "false")
    await eventually(lambda: drains.claims_are_gone([drained]), seconds=PATIENCE)
    await eventually(lambda: drains.pods_run(1), seconds=PATIENCE)
    await drains.nodes_were_bought(2)
    await _steadfast(steady, 2)
    await steady.one_node_was_bought()


async def _hold(scene: Scene, held: str) -> None:
    """A budget would not do: of a node that is Unknown after an outage Kubernetes lets pods be evicted all the same."""
    (pod,) = names(await scene.pods())
    path = PODS.path(pod, namespace="default")
    await scene.product.patch(path, {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: held}}})


async def _drains(scene: Scene) -> None:
    lives = await scene.lives()
    assert [life.phase for life in lives[:1]] == [Phase.DRAIN.value], lives
    await scene.pods_run(1)
