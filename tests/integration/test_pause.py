"""The brake on the real parts: by the command, by annotation, of a pool, a node and the whole cluster; and how soon."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis.labels import PAUSE
from tenure.cli.disruption.pause import Target, tell, wanted_pause
from tenure.kube.client.resources import NAMESPACES, NODE_CLAIMS, NODES
from tenure.model.disruption.drain import DrainState
from tenure.model.nodeclaim_state import ClaimState
from tenure.model.signals import Resume
from tests.support.product.drains import put_under, terminating_pod
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import OwnProduct, Product
from tests.support.product.scene import Scene

Life = WorkflowHandle[Any, Any]


async def pause(product: Product, target: Target) -> str:
    wanted = wanted_pause("1h", "", "a test, of pauses", "ann@example.com", datetime.now(UTC))
    return await tell(product.connection, target, "pause", wanted)


async def resume(product: Product, target: Target) -> str:
    return await tell(product.connection, target, "resume", Resume(by="ann@example.com"))


async def annotate(product: Product, path: str, text: str | None) -> None:
    await product.patch(path, {"metadata": {"annotations": {PAUSE: text}}})


async def annotated(product: Product, path: str, *words: str) -> None:
    found = await product.kube.request("GET", path)
    text = (found["metadata"].get("annotations") or {}).get(PAUSE, "")
    assert all(word in text for word in words) and bool(text) == bool(words), text


def text(**lasting: float) -> str:
    until = (datetime.now(UTC) + timedelta(**lasting)).isoformat(timespec="seconds")
    return f"until={until}, by=ann, reason=a test, of pauses"


async def kept(scene: Scene, name: str, *words: str) -> None:
    """It is empty and due, says why it stays, and stays."""
    await eventually(partial(scene.is_blocked_by, name, *words))
    await throughout(partial(scene.claims_stand, [name]), seconds=5)


async def test_a_paused_pool_keeps_an_empty_node_until_it_is_resumed(product: Product) -> None:
    async with product.scene("paused") as scene:
        (claim,) = await scene.run(1)
        name, path, pool = claim["metadata"]["name"], scene.pool_path, scene.name
        assert f"NodePool {pool} is paused until" in await pause(product, Target(pool=pool))
        await eventually(partial(annotated, product, path, "by=ann@example.com", "reason=a test, of pauses"))
        await scene.scale(0)
        await kept(scene, name, f"NodePool {pool} is paused by ann@example.com")
        await eventually(partial(scene.event, pool, "DisruptionPaused", "a test, of pauses"))
        assert await resume(product, Target(pool=pool)) == f"NodePool {pool} goes on"
        await eventually(partial(scene.claims_are_gone, [name]))
        await eventually(partial(annotated, product, path))


async def test_an_annotation_pauses_and_its_end_resumes_and_takes_it_off(product: Product) -> None:
    async with product.scene("annotated") as scene:
        (claim,) = await scene.run(1)
        name, path = claim["metadata"]["name"], scene.pool_path
        await annotate(product, path, "until next week")
        await eventually(partial(scene.event, scene.name, "DisruptionPaused", "has no reason; write it last"))
        await scene.scale(0)
        await kept(scene, name, "is paused by the annotation")
        until = time.monotonic() + 45
        await annotate(product, path, text(seconds=45))
        await eventually(partial(scene.is_blocked_by, name, "is paused by ann until"))
        await eventually(partial(scene.claims_are_gone, [name]))
        assert time.monotonic() > until - 1
        await eventually(partial(annotated, product, path))


async def test_an_annotation_of_a_node_holds_that_node_alone(product: Product) -> None:
    async with product.scene("one-node") as scene:
        claims = await scene.run(2)
        held, other = (one["metadata"]["name"] for one in claims)
        await annotate(product, NODES.path(claims[0]["status"]["nodeName"]), text(hours=1))
        await eventually(partial(scene.event, held, "DisruptionPaused"))
        await scene.scale(0)
        await eventually(partial(scene.claims_are_gone, [other]))
        await kept(scene, held, "the node is paused by ann")
        assert await resume(product, Target(node=held)) == f"NodeClaim {held} goes on"
        await eventually(partial(scene.claims_are_gone, [held]))


async def test_what_is_under_way_stops_within_seconds(product: Product) -> None:
    async with product.scene("under-way") as scene:
        (claim,) = await scene.run(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        await put_under(scene, name, whenBlocked="giveUp", blockedFor="1h")
        life = await scene.workflow(name)
        async with terminating_pod(scene):
            await scene.scale(0)
            await eventually(partial(_drains, scene, life, name))
            began = time.monotonic()
            await pause(product, Target(pool=scene.name))
            await eventually(partial(scene.node_is_in_service, node))
            took = time.monotonic() - began
        print(f"a drain under way was given up {took:.1f} s after the pause was asked for")
        await kept(scene, name, f"NodePool {scene.name} is paused by ann@example.com")
        await resume(product, Target(pool=scene.name))
        await eventually(partial(scene.claims_are_gone, [name]))


async def test_the_namespaces_annotation_pauses_the_whole_cluster(own_product: OwnProduct) -> None:
    await own_product.work()
    path = NAMESPACES.path("tenure")
    async with own_product.scene("whole") as scene:
        (claim,) = await scene.run(1)
        name = claim["metadata"]["name"]
        await annotate(own_product, path, text(hours=1))
        try:
            await scene.scale(0)
            await kept(scene, name, "the cluster is paused by ann")
        finally:
            await annotate(own_product, path, None)
        await eventually(partial(scene.claims_are_gone, [name]))


async def _drains(scene: Scene, life: Life, claim: str) -> None:
    """Its drain is under way, and its NodeClaim is not deleted yet."""
    state = await life.query("state", result_type=ClaimState)
    assert (state.drain or DrainState()).keep, state.phase
    found = await scene.product.kube.request("GET", NODE_CLAIMS.path(claim))
    assert "deletionTimestamp" not in found["metadata"]
