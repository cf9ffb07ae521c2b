"""Promise 1: consolidation that fails round after round is one pool's trouble; empty nodes of another still go."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pytest

from tenure.sandbox.fault_proxy import Answer
from tests.support.product.drains import drained_within
from tests.support.product.eventually import eventually
from tests.support.product.halves import CONSOLIDATES, half_empty, one_is_left, small_pods
from tests.support.product.product import Product
from tests.support.product.scene import names
from tests.support.product.shared_sandbox import FaultRule

AFTER = 1.0
"""consolidateAfter of the other pool, in seconds."""
BOUND = AFTER + 60


@pytest.mark.row("000-f")
async def test_a_pool_whose_consolidation_fails_again_and_again_holds_up_no_other(product: Product) -> None:
    async with product.scene("000-f") as failing, product.scene("000-f-other", after=f"{AFTER:g}s") as other:
        halves, claims = await half_empty(failing), await other.run(2)
        nodes = [one["status"]["nodeName"] for one in halves]
        refused = [failing.api_fault(Answer(500), f"/nodes/{node}$", "PATCH") for node in nodes]
        await product.patch(failing.pool_path, {"spec": {"disruption": CONSOLIDATES}})
        await eventually(partial(_failed, refused, 3))
        before = sum(rule.hits for rule in refused)
        scaled = datetime.now(UTC)
        await other.scale(0)
        await eventually(lambda: other.claims_are_gone(names(claims)))
        await drained_within(other, names(claims), BOUND, since=scaled)
        await eventually(partial(_failed, refused, before + 1))
        await failing.claims_stand(names(halves))
        for node in nodes:
            await failing.node_is_in_service(node)
        for rule in refused:
            failing.pardon(rule)
        await eventually(lambda: one_is_left(failing, names(halves)))
        await eventually(lambda: failing.pods_run(2, small_pods(failing)))


async def _failed(rules: Sequence[FaultRule], times: int) -> None:
    hits = sum(rule.hits for rule in rules)
    assert hits >= times, f"failed {hits} times"
