"""A worker that is killed and started again takes up its work, and writes nothing about nodes that did not change.

The figures for 500 nodes are `python -m benchmarks.recovery`'s.
"""

import asyncio

from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names
from tests.support.product.tidying import unasked

NODES = 30
QUIET = 8.0
"""Seconds of watching after the restart's first decision: the first resync is over by then."""


async def test_a_restart_writes_nothing_about_nodes_that_did_not_change(product: OwnProduct) -> None:
    await product.work()
    async with unasked(product, "tags"), product.scene("many") as many, product.scene("one") as one:
        claims = names(await many.run(NODES))
        nodes = names(await many.nodes())
        await eventually(lambda: _is_all_written(many))
        await product.kill()
        written = len(product.own_sandbox.written)
        await one.deploy(1)
        await product.go_on()
        await eventually(lambda: one.pods_run(1))
        await asyncio.sleep(QUIET)
        said = product.own_sandbox.written[written:]
        assert _about(said, names(await one.claims())), "nothing was written of what did change"
        assert not _about(said, [*claims, *nodes]), _about(said, [*claims, *nodes])
        assert await _same(many, claims)


async def _is_all_written(scene: Scene) -> None:
    """The worker is not behind with what it has to say of them: it says that of its pods last."""
    left = names([one for one in await scene.claims() if not one["status"].get("lastPodEventTime")])
    assert not left, f"{left} do not tell of their pods yet"


def _about(written: list[str], objects: list[str]) -> list[str]:
    return [line for line in written if set(line.split("/")) & set(objects)]


async def _same(scene: Scene, claims: list[str]) -> bool:
    return names(await scene.claims()) == claims
