"""AWS's messages while Temporal is away, or while the worker is killed: none is lost.

While Temporal is away they stay in the queue, and the metric that the alert goes by stands still.

`TENURE_OUTAGE` is the outage in seconds.
"""

import asyncio
import os

import pytest

from tests.scenarios.announced import state_of, warn
from tests.support.product.eventually import eventually
from tests.support.product.objects import Object
from tests.support.product.product import OwnProduct
from tests.support.product.queue import nothing_is_queued, queued
from tests.support.product.scene import Scene, names

TEMPORAL = "temporal"
SECONDS = float(os.environ.get("TENURE_OUTAGE", "30"))
TIMES = 100
"""How often each message comes; so often come messages about instances of others."""
PATIENCE = 150.0 + SECONDS
NODES = 3
READ = "tenure_interruption_last_read_seconds"
RECEIVED = 5.0
"""Seconds in which a poll that brought nothing may still end; on a busy machine it takes longer."""
SLOWLY = 1.0
"""Seconds until the queue answers, so that many messages are left when the worker is killed."""


@pytest.mark.timeout(600 + 3 * SECONDS)
async def test_warnings_that_come_meanwhile_are_all_handled_once_it_is_back(product: OwnProduct) -> None:
    await product.work(INTERRUPTION_QUEUE="demo")
    async with product.scene("warned") as scene:
        claims = await scene.run(NODES)
        await asyncio.to_thread(product.own_sandbox.stop_part, TEMPORAL)
        try:
            warn(product, *claims)
            before = await eventually(lambda: _stands_still(product))
            await asyncio.sleep(SECONDS)
            assert queued(product) == NODES
            assert await product.metric(READ, source="queue") == before
            await scene.claims_stand(names(claims))
        finally:
            await asyncio.to_thread(product.own_sandbox.start_part, TEMPORAL)
        for name in names(claims):
            await eventually(lambda name=name: scene.event(name, "SpotInterrupted"), seconds=PATIENCE)  # type: ignore[misc]
        await eventually(lambda: scene.claims_are_gone(names(claims)), seconds=PATIENCE)
        await eventually(lambda: scene.pods_run(NODES), seconds=PATIENCE)
        await scene.nodes_were_bought(2 * NODES)
        await eventually(lambda: nothing_is_queued(product), seconds=PATIENCE)


async def test_a_worker_that_is_killed_among_its_messages_loses_none(product: OwnProduct) -> None:
    await product.work(INTERRUPTION_QUEUE="demo")
    async with product.scene("reads") as scene:
        claims = await scene.run(NODES)
        await product.kill()
        await asyncio.to_thread(_send_many, product, scene.launched())
        await asyncio.to_thread(warn, product, *claims[1:])
        sent = queued(product)
        slow = [
            product.aws.add_fault("latency", service="sqs", action=action, latency=SLOWLY)
            for action in ("ReceiveMessage", "DeleteMessageBatch")
        ]
        try:
            await product.go_on()
            await eventually(lambda: _fewer_are_queued(product, sent), every=0.0)
            await product.kill()
        finally:
            for one in slow:
                product.aws.remove_fault(one)
        assert queued(product) > 0, "killed too late to show anything"
        await product.go_on()
        await eventually(lambda: nothing_is_queued(product), seconds=PATIENCE)
        stays, *go = names(claims)
        await eventually(lambda: scene.claims_are_gone(go), seconds=PATIENCE)
        await eventually(lambda: _knows(scene, claims[0], "rebalanceRecommendation"))
        await scene.claims_stand([stays])
        await eventually(lambda: scene.pods_run(NODES), seconds=PATIENCE)
        await scene.nodes_were_bought(NODES + len(go))


async def _stands_still(product: OwnProduct) -> float:
    """When the queue was read last, now that it is not any more."""
    before = await product.metric(READ, source="queue")
    await asyncio.sleep(RECEIVED)
    assert await product.metric(READ, source="queue") == before
    return before


async def _knows(scene: Scene, claim: Object, *kinds: str) -> None:
    """Each once. The Kubernetes event of it may be lost with the worker, or be said again by the next."""
    found = (await state_of(scene, claim)).notices
    assert [one.notice.kind for one in found] == [*kinds], found


def _send_many(product: OwnProduct, instances: list[str]) -> None:
    for number in range(TIMES):
        product.aws.health_event([f"i-{number:017x}"])
        for instance in instances:
            product.aws.recommend_rebalance(instance)


async def _fewer_are_queued(product: OwnProduct, sent: int) -> None:
    assert queued(product) < sent
