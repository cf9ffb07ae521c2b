"""Capacity blocks on the real parts: their nodes are drained before EC2 ends them, and nothing new goes into them."""

from functools import partial

from tenure.apis import labels
from tests.support.product.capacity_reservations import reservation_scope
from tests.support.product.eventually import TIMEOUT_SECONDS, wait_until
from tests.support.product.product import InstalledProduct

LEAD = 40 * 60.0
"""Seconds before a block's end at which its nodes begin to go."""
USABLE = 120.0
"""Seconds for which it can be launched into before that."""


async def test_a_node_on_a_block_that_ends_is_drained_and_its_pods_go_elsewhere(product: InstalledProduct) -> None:
    async with reservation_scope(product, "block", kind="capacity-block", lasts=LEAD + USABLE) as there:
        claim = await there.start()
        await there.assert_reserved(claim, kind="capacity-block")
        await wait_until(
            partial(there.scope.assert_event, claim, "CapacityBlockEnding"), seconds=TIMEOUT_SECONDS + USABLE
        )
        await wait_until(lambda: there.scope.assert_nodeclaims_deleted([claim]))
        await wait_until(lambda: there.scope.assert_pods_running(1))
        await wait_until(lambda: there.scope.assert_nodes_initialized(1))
        await there.assert_on_demand(await there.scope.assert_newest_nodeclaim(1))
        nodeclaims = {nodeclaim.name: nodeclaim for nodeclaim in await there.scope.nodeclaim_workflows()}
        outcome = await product.nodeclaim_workflows.fetch_outcome(nodeclaims[claim])
        assert labels.RESERVED in outcome.history[1].cause, outcome.history
