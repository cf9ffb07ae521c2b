"""Promise 1: repeated consolidation failures in one NodePool do not block empty nodes of another."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pytest

from tenure.sandbox.fault_proxy import ErrorResponse
from tests.support.product.cluster_scope import object_names
from tests.support.product.drains import assert_drained_within
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct
from tests.support.product.shared_sandbox import FaultRule
from tests.support.product.underutilized_nodes import (
    CONSOLIDATION,
    assert_one_remaining,
    make_underutilized_nodes,
    small_deployment_name,
)

AFTER = 1.0
"""consolidateAfter of the other pool, in seconds."""
BOUND = AFTER + 60


@pytest.mark.row("000-f")
async def test_failing_consolidation_does_not_block_other_nodepool(product: InstalledProduct) -> None:
    async with product.scope("000-f") as failing, product.scope("000-f-other", after=f"{AFTER:g}s") as other:
        underutilized, claims = await make_underutilized_nodes(failing), await other.run_pods(2)
        nodes = [one["status"]["nodeName"] for one in underutilized]
        faults = [failing.inject_api_fault(ErrorResponse(500), f"/nodes/{node}$", "PATCH") for node in nodes]
        await product.patch(failing.pool_path, {"spec": {"disruption": CONSOLIDATION}})
        await wait_until(partial(_assert_failed, faults, 3))
        before = sum(rule.hits for rule in faults)
        scaled = datetime.now(UTC)
        await other.scale_deployment(0)
        await wait_until(lambda: other.assert_nodeclaims_deleted(object_names(claims)))
        await assert_drained_within(other, object_names(claims), BOUND, since=scaled)
        await wait_until(partial(_assert_failed, faults, before + 1))
        await failing.assert_nodeclaims_exist(object_names(underutilized))
        for node in nodes:
            await failing.assert_node_not_disrupted(node)
        for rule in faults:
            failing.remove_api_fault(rule)
        await wait_until(lambda: assert_one_remaining(failing, object_names(underutilized)))
        await wait_until(lambda: failing.assert_pods_running(2, small_deployment_name(failing)))


async def _assert_failed(rules: Sequence[FaultRule], times: int) -> None:
    hits = sum(rule.hits for rule in rules)
    assert hits >= times, f"failed {hits} times"
