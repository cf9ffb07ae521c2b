"""Temporal at its request limit: launches and deletions take longer, and each node is launched once."""

import pytest

from tenure.sandbox.spec import Plan
from tests.chaos import consistency_checks
from tests.support.product.eventually import wait_until
from tests.support.product.fixtures import own_product, sandbox
from tests.support.product.product import DedicatedProduct
from tests.support.product.shared_sandbox import sandbox_plan

__all__ = ["own_product", "sandbox"]

NODES = 20
REQUESTS_PER_SECOND = 6
"""A launch of 20 nodes at once sends several times as many. The client repeats rejected requests, and the log has those
that it gives up."""
TIMEOUT_SECONDS = 400.0


@pytest.fixture(scope="session")
def plan() -> Plan:
    return sandbox_plan(temporal_requests_per_second=REQUESTS_PER_SECOND)


@pytest.mark.timeout(300 + 3 * TIMEOUT_SECONDS)
async def test_nodes_launch_once_at_the_request_limit_of_temporal(own_product: DedicatedProduct) -> None:
    product = own_product
    await product.ensure_worker()
    async with product.scope("limited") as scope:
        await scope.create_deployment(NODES)
        await wait_until(lambda: scope.assert_pods_running(NODES), seconds=TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_nodes_initialized(NODES), seconds=TIMEOUT_SECONDS)
        await scope.wait_until_nodes_launched(NODES)
        rejected = [one for one in product.log_entries() if "rate limit exceeded" in str(one.get("error"))]
        assert rejected, "the limit was never reached"
        await wait_until(lambda: consistency_checks.assert_nodes_consistent(scope))
        await scope.scale_deployment(0)
        await wait_until(scope.assert_no_nodes, seconds=TIMEOUT_SECONDS)
        await consistency_checks.assert_workflows_completed(scope)
