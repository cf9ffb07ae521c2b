"""A new build of the worker takes over from the one before, as a roll-out does it, with a node in its drain."""

from collections.abc import AsyncIterator

import pytest_asyncio
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest

from tenure.controller.temporal.worker_versioning import current_build
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.drains import protect
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct
from tests.support.product.scene import names
from workflows import ids


@pytest_asyncio.fixture(loop_scope="session")
async def versioned(product: OwnProduct) -> AsyncIterator[OwnProduct]:
    """No build has the tasks for itself any more when other tests go on."""
    yield product
    await product.rest()
    plan = product.own_sandbox.plan
    await product.temporal.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=plan.namespace, deployment_name=ids.deployment(plan.cluster_name), build_id=""
        ),
        retry=True,
    )


async def test_open_lives_go_on_with_the_build_that_takes_over(versioned: OwnProduct) -> None:
    product = versioned
    await product.work(TEMPORAL_WORKER_BUILD_ID="v1")
    old = product.worker
    async with product.scene("builds", after="Never") as scene:
        await scene.run(1)
        await protect(scene, "true")
        (going,) = names(await scene.claims())
        await product.delete(NODE_CLAIMS.path(going))
        await eventually(lambda: scene.says(going, "do-not-disrupt"))
        new = product.hire(TEMPORAL_WORKER_BUILD_ID="v2")
        await new.start()
        await eventually(lambda: _is_current(product, "v2"))
        assert await old.finish() == 0
        await protect(scene, "false")
        await eventually(lambda: scene.claims_are_gone([going]))
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)
        assert await product.failed_workflows() == []


async def _is_current(product: OwnProduct, build: str) -> None:
    current = await current_build(product.temporal, product.own_sandbox.plan.cluster_name)
    assert current == build, current
