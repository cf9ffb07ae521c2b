"""Capacity blocks on real components: their nodes are drained before EC2 ends them, and no new node launches into
them.
"""

from functools import partial

from tenure.apis import labels
from tests.support.product.capacity_reservations import reservation_scope
from tests.support.product.eventually import TIMEOUT_SECONDS, wait_until
from tests.support.product.product import InstalledProduct

LEAD_SECONDS = 40 * 60.0
"""Seconds before a block's end at which the drain of its nodes starts."""
USABLE_SECONDS = 120.0
"""Seconds before that, in which nodes can launch into the block."""


async def test_node_of_an_ending_capacity_block_is_drained_and_replaced(product: InstalledProduct) -> None:
    async with reservation_scope(
        product, "block", kind="capacity-block", lasts=LEAD_SECONDS + USABLE_SECONDS
    ) as reservation:
        claim = await reservation.start()
        await reservation.assert_reserved(claim, kind="capacity-block")
        await wait_until(
            partial(reservation.scope.assert_event, claim, "CapacityBlockEnding"),
            seconds=TIMEOUT_SECONDS + USABLE_SECONDS,
        )
        await wait_until(lambda: reservation.scope.assert_nodeclaims_deleted([claim]))
        await wait_until(lambda: reservation.scope.assert_pods_running(1))
        await wait_until(lambda: reservation.scope.assert_nodes_initialized(1))
        await reservation.assert_on_demand(await reservation.scope.assert_newest_nodeclaim(1))
        nodeclaims = {nodeclaim.name: nodeclaim for nodeclaim in await reservation.scope.nodeclaim_workflows()}
        outcome = await product.nodeclaim_workflows.fetch_outcome(nodeclaims[claim])
        assert labels.RESERVED in outcome.history[1].cause, outcome.history
