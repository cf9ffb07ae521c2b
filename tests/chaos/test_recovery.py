"""A worker that is killed and started again takes up its work, and writes nothing about nodes that did not change.

The figures for 500 nodes are `python -m benchmarks.recovery`'s.
"""

import asyncio

from tests.support.product.eventually import wait_until
from tests.support.product.garbage_collection import paused_schedule
from tests.support.product.product import DedicatedProduct
from tests.support.product.scene import ClusterScope, object_names

NODES = 30
QUIET = 8.0
"""Seconds of watching after the restart's first decision: the first resync is over by then."""


async def test_a_restart_writes_nothing_about_nodes_that_did_not_change(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with paused_schedule(product, "tags"), product.scope("many") as many, product.scope("one") as one:
        claims = object_names(await many.run_pods(NODES))
        nodes = object_names(await many.nodes())
        await wait_until(lambda: _assert_status_written(many))
        await product.kill_worker()
        written = len(product.own_sandbox.written)
        await one.create_deployment(1)
        await product.resume_worker()
        await wait_until(lambda: one.assert_pods_running(1))
        await asyncio.sleep(QUIET)
        writes = product.own_sandbox.written[written:]
        assert _writes_about(writes, object_names(await one.nodeclaims())), "nothing was written of what did change"
        assert not _writes_about(writes, [*claims, *nodes]), _writes_about(writes, [*claims, *nodes])
        assert await _has_same_nodeclaims(many, claims)


async def _assert_status_written(scope: ClusterScope) -> None:
    """The worker is not behind with what it has to say of them: it says that of its pods last."""
    left = object_names([one for one in await scope.nodeclaims() if not one["status"].get("lastPodEventTime")])
    assert not left, f"{left} do not tell of their pods yet"


def _writes_about(written: list[str], objects: list[str]) -> list[str]:
    return [line for line in written if set(line.split("/")) & set(objects)]


async def _has_same_nodeclaims(scope: ClusterScope, claims: list[str]) -> bool:
    return object_names(await scope.nodeclaims()) == claims
