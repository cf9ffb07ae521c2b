"""A new build of the worker takes over from the previous one, as in a rollout, during a drain."""

from collections.abc import AsyncIterator

import pytest_asyncio
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest

from tenure.controller.temporal.worker_versioning import current_build
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.cluster_scope import object_names
from tests.support.product.drains import annotate_do_not_disrupt
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct
from workflows import ids


@pytest_asyncio.fixture(loop_scope="session")
async def versioned_product(product: DedicatedProduct) -> AsyncIterator[DedicatedProduct]:
    """Afterwards no build is current, so that the other tests' unversioned workers get the tasks."""
    yield product
    await product.stop_workers()
    plan = product.own_sandbox.plan
    await product.temporal.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=plan.namespace, deployment_name=ids.worker_deployment_name(plan.cluster_name), build_id=""
        ),
        retry=True,
    )


async def test_open_workflows_continue_with_the_new_build(versioned_product: DedicatedProduct) -> None:
    product = versioned_product
    await product.ensure_worker(TEMPORAL_WORKER_BUILD_ID="v1")
    old = product.worker
    async with product.scope("builds", after="Never") as scope:
        await scope.run_pods(1)
        await annotate_do_not_disrupt(scope, "true")
        (deleting,) = object_names(await scope.nodeclaims())
        await product.delete(NODE_CLAIMS.path(deleting))
        await wait_until(lambda: scope.assert_conditions_mention(deleting, "do-not-disrupt"))
        new = product.add_worker(TEMPORAL_WORKER_BUILD_ID="v2")
        await new.start()
        await wait_until(lambda: _assert_current_build(product, "v2"))
        assert await old.stop_gracefully() == 0
        await annotate_do_not_disrupt(scope, "false")
        await wait_until(lambda: scope.assert_nodeclaims_deleted([deleting]))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)
        assert await product.failed_workflows() == []


async def _assert_current_build(product: DedicatedProduct, build: str) -> None:
    current = await current_build(product.temporal, product.own_sandbox.plan.cluster_name)
    assert current == build, current
