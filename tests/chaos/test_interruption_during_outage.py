"""AWS messages during a Temporal outage, or while the worker is killed: none is lost.

During the outage they stay in the queue, and the metric of the alert stops increasing.

`TENURE_OUTAGE` is the outage in seconds.
"""

import asyncio
import os

import pytest

from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import assert_queue_empty, nodeclaim_state, send_spot_warning
from tests.support.product.objects import Object
from tests.support.product.product import DedicatedProduct

TEMPORAL = "temporal"
SECONDS = float(os.environ.get("TENURE_OUTAGE", "30"))
TIMES = 100
"""Number of times that each message is sent, and of messages for foreign instances."""
TIMEOUT_SECONDS = 150.0 + SECONDS
NODES = 3
READ = "tenure_interruption_last_read_seconds"
LAST_POLL_SECONDS = 5.0
"""Seconds within which an empty poll ends; a busy machine takes longer."""
LATENCY_SECONDS = 1.0
"""Latency of the queue in seconds, so that many messages remain when the worker is killed."""


@pytest.mark.timeout(600 + 3 * SECONDS)
async def test_warnings_during_a_temporal_outage_are_handled_afterwards(product: DedicatedProduct) -> None:
    await product.ensure_worker(INTERRUPTION_QUEUE="demo")
    async with product.scope("warned") as scope:
        claims = await scope.run_pods(NODES)
        await asyncio.to_thread(product.own_sandbox.stop_part, TEMPORAL)
        try:
            send_spot_warning(product, *claims)
            before = await wait_until(lambda: _assert_queue_idle(product))
            await asyncio.sleep(SECONDS)
            assert product.aws.count_queued_messages() == NODES
            assert await product.metric_value(READ, source="queue") == before
            await scope.assert_nodeclaims_exist(object_names(claims))
        finally:
            await asyncio.to_thread(product.own_sandbox.start_part, TEMPORAL)
        for name in object_names(claims):
            await wait_until(lambda name=name: scope.assert_event(name, "SpotInterrupted"), seconds=TIMEOUT_SECONDS)  # type: ignore[misc]
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names(claims)), seconds=TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_pods_running(NODES), seconds=TIMEOUT_SECONDS)
        await scope.wait_until_nodes_launched(2 * NODES)
        await wait_until(lambda: assert_queue_empty(product), seconds=TIMEOUT_SECONDS)


async def test_killed_worker_loses_no_queue_message(product: DedicatedProduct) -> None:
    await product.ensure_worker(INTERRUPTION_QUEUE="demo")
    async with product.scope("reads") as scope:
        claims = await scope.run_pods(NODES)
        await product.kill_worker()
        await asyncio.to_thread(_send_many, product, scope.launched_instances())
        await asyncio.to_thread(send_spot_warning, product, *claims[1:])
        sent = product.aws.count_queued_messages()
        slow = [
            product.aws.add_fault("latency", service="sqs", action=action, latency=LATENCY_SECONDS)
            for action in ("ReceiveMessage", "DeleteMessageBatch")
        ]
        try:
            await product.resume_worker()
            await wait_until(lambda: _assert_queue_shrinks(product, sent), poll_interval=0.0)
            await product.kill_worker()
        finally:
            for one in slow:
                product.aws.remove_fault(one)
        assert product.aws.count_queued_messages() > 0, "the queue was empty before the kill"
        await product.resume_worker()
        await wait_until(lambda: assert_queue_empty(product), seconds=TIMEOUT_SECONDS)
        uninterrupted, *interrupted = object_names(claims)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(interrupted), seconds=TIMEOUT_SECONDS)
        await wait_until(lambda: _assert_messages_recorded(scope, claims[0], "rebalanceRecommendation"))
        await scope.assert_nodeclaims_exist([uninterrupted])
        await wait_until(lambda: scope.assert_pods_running(NODES), seconds=TIMEOUT_SECONDS)
        await scope.wait_until_nodes_launched(NODES + len(interrupted))


async def _assert_queue_idle(product: DedicatedProduct) -> float:
    """Polling has stopped. Returns the time of the last poll."""
    before = await product.metric_value(READ, source="queue")
    await asyncio.sleep(LAST_POLL_SECONDS)
    assert await product.metric_value(READ, source="queue") == before
    return before


async def _assert_messages_recorded(scope: ClusterScope, claim: Object, *kinds: str) -> None:
    """Each message is recorded once. Its Kubernetes event may be lost with the worker, or repeated by the next."""
    found = (await nodeclaim_state(scope, claim)).interruptions
    assert [one.message.kind for one in found] == [*kinds], found


def _send_many(product: DedicatedProduct, instances: list[str]) -> None:
    for number in range(TIMES):
        product.aws.health_event([f"i-{number:017x}"])
        for instance in instances:
            product.aws.recommend_rebalance(instance)


async def _assert_queue_shrinks(product: DedicatedProduct, sent: int) -> None:
    assert product.aws.count_queued_messages() < sent
