"""A restarted worker resumes its work, and writes nothing about unchanged nodes.

`python -m benchmarks.recovery` measures 500 nodes.
"""

import asyncio

from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.garbage_collection import paused_task
from tests.support.product.product import DedicatedProduct

NODES = 30
QUIET_SECONDS = 8.0
"""Seconds of observation after the first decision of the new worker; its first resync is over by then."""


async def test_restarted_worker_writes_nothing_about_unchanged_nodes(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with paused_task(product, "tags"), product.scope("many") as many, product.scope("one") as one:
        claims = object_names(await many.run_pods(NODES))
        nodes = object_names(await many.nodes())
        await wait_until(lambda: _assert_status_written(many))
        await product.kill_worker()
        written = len(product.own_sandbox.written)
        await one.create_deployment(1)
        await product.resume_worker()
        await wait_until(lambda: one.assert_pods_running(1))
        await asyncio.sleep(QUIET_SECONDS)
        writes = product.own_sandbox.written[written:]
        assert _writes_about(writes, object_names(await one.nodeclaims())), "nothing was written about changed objects"
        assert not _writes_about(writes, [*claims, *nodes]), _writes_about(writes, [*claims, *nodes])
        assert await _has_same_nodeclaims(many, claims)


async def _assert_status_written(scope: ClusterScope) -> None:
    """The worker has written all status; the last pod event is written last."""
    without_pod_event = object_names(
        [one for one in await scope.nodeclaims() if not one["status"].get("lastPodEventTime")]
    )
    assert not without_pod_event, f"{without_pod_event} have no lastPodEventTime yet"


def _writes_about(written: list[str], objects: list[str]) -> list[str]:
    return [line for line in written if set(line.split("/")) & set(objects)]


async def _has_same_nodeclaims(scope: ClusterScope, claims: list[str]) -> bool:
    return object_names(await scope.nodeclaims()) == claims
