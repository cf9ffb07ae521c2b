"""Capacity blocks on the real parts: their nodes are drained before EC2 ends them, and nothing new goes into them."""

from functools import partial

from tenure.apis import labels
from tests.scenarios.reserved import reserved
from tests.support.product.eventually import PATIENCE, eventually
from tests.support.product.product import Product

LEAD = 40 * 60.0
"""Seconds before a block's end at which its nodes begin to go."""
USABLE = 120.0
"""Seconds for which it can be launched into before that."""


async def test_a_node_on_a_block_that_ends_is_drained_and_its_pods_go_elsewhere(product: Product) -> None:
    async with reserved(product, "block", kind="capacity-block", lasts=LEAD + USABLE) as there:
        claim = await there.start()
        await there.is_reserved(claim, kind="capacity-block")
        await eventually(partial(there.scene.event, claim, "CapacityBlockEnding"), seconds=PATIENCE + USABLE)
        await eventually(lambda: there.scene.claims_are_gone([claim]))
        await eventually(lambda: there.scene.pods_run(1))
        await eventually(lambda: there.scene.nodes_are_initialized(1))
        await there.is_on_demand(await there.scene.newest_claim(1))
        lives = {life.name: life for life in await there.scene.lives()}
        outcome = await product.lives.outcome(lives[claim])
        assert labels.RESERVED in outcome.story[1].cause, outcome.story
