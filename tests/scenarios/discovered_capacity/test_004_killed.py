"""Promise 5, across worker restarts, deleted nodes and a lost Temporal store."""

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from tests.scenarios.discovered_capacity.pods_and_nodeclasses import (
    LARGE,
    MIB,
    REAL,
    assert_discovered,
    deploy_pods,
    inject_less_memory,
    wait_until_launched_types,
)
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct, InstalledProduct
from workflows import ids


@pytest.mark.row("004-f")
async def test_discovered_memory_outlives_the_node_and_the_worker(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("004-f", types=["m5n.large", "m5n.xlarge"]) as scope:
        await inject_less_memory(scope, "m5n.large")
        (claim,) = await scope.run_pods(1)
        image = claim["status"]["imageID"]
        await wait_until(lambda: assert_discovered(own_product, image, "m5n.large", REAL * MIB))
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([claim["metadata"]["name"]]))
        await own_product.kill_worker()
        await own_product.resume_worker()
        await deploy_pods(scope, 1, LARGE, f"{scope.name}-large")
        await wait_until(lambda: scope.assert_pods_running(1, f"{scope.name}-large"))
        await wait_until_launched_types(scope, "m5n.large", "m5n.xlarge")


@pytest.mark.row("004-f")
async def test_running_nodes_restore_discovered_memory_after_store_loss(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("004-f", types=["m5dn.large", "m5dn.xlarge"]) as scope:
        await inject_less_memory(scope, "m5dn.large")
        (claim,) = await scope.run_pods(1)
        image = claim["status"]["imageID"]
        await wait_until(lambda: assert_discovered(own_product, image, "m5dn.large", REAL * MIB))
        await own_product.stop_workers()
        await _delete_provisioning_workflow(own_product)
        await deploy_pods(scope, 1, LARGE, f"{scope.name}-large")
        await own_product.resume_worker()
        await wait_until(lambda: scope.assert_pods_running(1, f"{scope.name}-large"))
        await wait_until_launched_types(scope, "m5dn.large", "m5dn.xlarge")
        await wait_until(lambda: assert_discovered(own_product, image, "m5dn.large", REAL * MIB))


async def _delete_provisioning_workflow(product: InstalledProduct) -> None:
    """Delete the workflow with its state from Temporal's store."""
    name = ids.provisioning(product.sandbox.plan.cluster_name)
    request = DeleteWorkflowExecutionRequest(
        namespace=product.temporal.namespace, workflow_execution=WorkflowExecution(workflow_id=name)
    )
    await product.temporal.workflow_service.delete_workflow_execution(request)
    await wait_until(lambda: _assert_lost(product, name))


async def _assert_lost(product: InstalledProduct, name: str) -> None:
    assert name not in [one.id for one in await product.open_workflows()], f"{name} is still there"
