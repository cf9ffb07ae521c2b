"""Promise 5, across the ends of workers, nodes and of Temporal's store."""

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from tests.scenarios.acts_of_learning import LARGE, MIB, REAL, has_less, is_learnt, wants, were_bought
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct, Product
from workflows import ids


@pytest.mark.row("004-f")
async def test_what_was_learnt_outlives_the_node_and_the_worker(own_product: OwnProduct) -> None:
    await own_product.work()
    async with own_product.scene("004-f", types=["m5n.large", "m5n.xlarge"]) as scene:
        await has_less(scene, "m5n.large")
        (claim,) = await scene.run(1)
        image = claim["status"]["imageID"]
        await eventually(lambda: is_learnt(own_product, image, "m5n.large", REAL * MIB))
        await scene.scale(0)
        await eventually(lambda: scene.claims_are_gone([claim["metadata"]["name"]]))
        await own_product.kill()
        await own_product.go_on()
        await wants(scene, 1, LARGE, f"{scene.name}-large")
        await eventually(lambda: scene.pods_run(1, f"{scene.name}-large"))
        await were_bought(scene, "m5n.large", "m5n.xlarge")


@pytest.mark.row("004-f")
async def test_live_nodes_teach_again_before_the_first_plan_when_temporals_store_is_lost(
    own_product: OwnProduct,
) -> None:
    await own_product.work()
    async with own_product.scene("004-f", types=["m5dn.large", "m5dn.xlarge"]) as scene:
        await has_less(scene, "m5dn.large")
        (claim,) = await scene.run(1)
        image = claim["status"]["imageID"]
        await eventually(lambda: is_learnt(own_product, image, "m5dn.large", REAL * MIB))
        await own_product.rest()
        await _lose_provisioning(own_product)
        await wants(scene, 1, LARGE, f"{scene.name}-large")
        await own_product.go_on()
        await eventually(lambda: scene.pods_run(1, f"{scene.name}-large"))
        await were_bought(scene, "m5dn.large", "m5dn.xlarge")
        await eventually(lambda: is_learnt(own_product, image, "m5dn.large", REAL * MIB))


async def _lose_provisioning(product: Product) -> None:
    """The workflow is gone from the store, with all that it kept."""
    name = ids.provisioning(product.sandbox.plan.cluster_name)
    request = DeleteWorkflowExecutionRequest(
        namespace=product.temporal.namespace, workflow_execution=WorkflowExecution(workflow_id=name)
    )
    await product.temporal.workflow_service.delete_workflow_execution(request)
    await eventually(lambda: _is_lost(product, name))


async def _is_lost(product: Product, name: str) -> None:
    assert name not in [one.id for one in await product.open_workflows()], f"{name} is still there"
