"""Temporal and its database are stopped and upgraded while a worker runs.

`make postgres` runs it, in a sandbox of its own that starts with the previous version.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

from tenure.kube.client.resources import NODE_CLAIMS
from tenure.sandbox.controlplane.tools import TEMPORAL, TEMPORAL_BEFORE
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Plan
from tests.support.product.cluster_scope import object_names
from tests.support.product.drains import annotate_do_not_disrupt
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.product import DedicatedProduct

pytestmark = pytest.mark.timeout(600)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def old_product(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DedicatedProduct]:
    if plan.temporal != "postgres":
        pytest.skip("make postgres")
    previous_version_plan = replace(plan, temporal_version=TEMPORAL_BEFORE)
    async with (
        Sandbox(tmp_path_factory.mktemp("upgraded"), plan=previous_version_plan) as sandbox,
        DedicatedProduct(sandbox) as product,
    ):
        yield product


async def test_nodes_and_drains_survive_a_temporal_upgrade(old_product: DedicatedProduct) -> None:
    product, sandbox = old_product, old_product.own_sandbox
    worker = await product.ensure_worker()
    assert await _server_version(product) == TEMPORAL_BEFORE
    async with product.scope("steady", after="Never") as steady, product.scope("drains", after="Never") as drains:
        await asyncio.gather(steady.run_pods(1), drains.run_pods(1))
        await annotate_do_not_disrupt(drains, "true")
        (deleting,) = object_names(await drains.nodeclaims())
        await product.delete(NODE_CLAIMS.path(deleting))
        await wait_until(lambda: drains.assert_conditions_mention(deleting, "do-not-disrupt"))
        for part in ("temporal", "postgres"):
            await asyncio.to_thread(sandbox.stop_part, part)
        await steady.scale_deployment(2)
        await assert_throughout(lambda: drains.assert_pods_running(1), seconds=5)
        await asyncio.to_thread(sandbox.start_part, "postgres")
        await asyncio.to_thread(sandbox.run, sandbox.temporal_server.upgrade(TEMPORAL))
        await wait_until(lambda: steady.assert_pods_running(2))
        assert await _server_version(product) == TEMPORAL
        await drains.assert_pods_running(1)
        await annotate_do_not_disrupt(drains, "false")
        await wait_until(lambda: drains.assert_nodeclaims_deleted([deleting]))
        await wait_until(lambda: drains.assert_pods_running(1))
        await steady.wait_until_nodes_launched(2)
        await drains.wait_until_nodes_launched(2)
        assert await product.failed_workflows() == []
        assert product.worker is worker and worker.is_running, f"the worker ended, see {worker.log}"


async def _server_version(product: DedicatedProduct) -> str:
    response = await product.temporal.workflow_service.get_system_info(GetSystemInfoRequest(), retry=True)
    return response.server_version
