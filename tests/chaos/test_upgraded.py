"""Temporal's server and its database are stopped and a newer version is started, under a worker at work.

`make postgres` runs it, in a world of its own that begins with the version before.
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
from tests.support.product.drains import protect
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import OwnProduct
from tests.support.product.scene import names

pytestmark = pytest.mark.timeout(600)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def old(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OwnProduct]:
    if plan.temporal != "postgres":
        pytest.skip("make postgres")
    begins = replace(plan, temporal_version=TEMPORAL_BEFORE)
    async with Sandbox(tmp_path_factory.mktemp("upgraded"), plan=begins) as sandbox, OwnProduct(sandbox) as product:
        yield product


async def test_nodes_and_drains_go_on_through_an_upgrade(old: OwnProduct) -> None:
    product, sandbox = old, old.own_sandbox
    worker = await product.work()
    assert await _version(product) == TEMPORAL_BEFORE
    async with product.scene("steady", after="Never") as steady, product.scene("drains", after="Never") as drains:
        await asyncio.gather(steady.run(1), drains.run(1))
        await protect(drains, "true")
        (going,) = names(await drains.claims())
        await product.delete(NODE_CLAIMS.path(going))
        await eventually(lambda: drains.says(going, "do-not-disrupt"))
        for part in ("temporal", "postgres"):
            await asyncio.to_thread(sandbox.stop_part, part)
        await steady.scale(2)
        await throughout(lambda: drains.pods_run(1), seconds=5)
        await asyncio.to_thread(sandbox.start_part, "postgres")
        await asyncio.to_thread(sandbox.run, sandbox.temporal_server.upgrade(TEMPORAL))
        await eventually(lambda: steady.pods_run(2))
        assert await _version(product) == TEMPORAL
        await drains.pods_run(1)
        await protect(drains, "false")
        await eventually(lambda: drains.claims_are_gone([going]))
        await eventually(lambda: drains.pods_run(1))
        await steady.nodes_were_bought(2)
        await drains.nodes_were_bought(2)
        assert await product.failed_workflows() == []
        assert product.worker is worker and worker.running, f"the worker ended, see {worker.log}"


async def _version(product: OwnProduct) -> str:
    answer = await product.temporal.workflow_service.get_system_info(GetSystemInfoRequest(), retry=True)
    return answer.server_version
