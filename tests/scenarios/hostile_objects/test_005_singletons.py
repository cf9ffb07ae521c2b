"""Promise 6: workflows continue after a cancellation request, a termination, and while events cannot be written."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from temporalio.client import WorkflowHandle

from tenure.cli.nodes.workflows import list_stopped_workflows
from tenure.controller.temporal.client import is_open, list_singletons
from tenure.kube.client.resources import NODE_CLAIMS, POD_DISRUPTION_BUDGETS
from tenure.model.observations import ObservedNodeClaim
from tenure.sandbox.fault_proxy import ErrorResponse
from tests.support.product.drains import pod_disruption_budget
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import nodeclaim_name, send_spot_warning
from tests.support.product.product import DedicatedProduct
from workflows import ids
from workflows.activity_options import CONTINUE_AS_NEW_AT_EVENTS

REPAIRED_WITHIN_SECONDS = 120.0


@pytest.mark.row("005-e")
async def test_cancelled_and_terminated_singletons_do_not_stop_the_cluster(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(INTERRUPTION_QUEUE=own_product.sandbox.plan.cluster_name)
    async with own_product.scope("005-e", after="Never") as scope:
        await for_each_singleton(own_product, lambda one: one.cancel())
        first, second = await scope.run_pods(2)
        await for_each_singleton(own_product, lambda one: one.terminate("005-e"))
        singletons = list_singletons(own_product.sandbox.plan.cluster_name)
        await wait_until(partial(assert_open, own_product, *singletons), seconds=REPAIRED_WITHIN_SECONDS)
        await own_product.delete(NODE_CLAIMS.path(nodeclaim_name(first)))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([nodeclaim_name(first)]))
        send_spot_warning(own_product, second)
        await wait_until(lambda: scope.assert_event(nodeclaim_name(second), "SpotInterrupted"))
        await wait_until(lambda: scope.assert_pods_running(2))


@pytest.mark.row("005-e")
async def test_terminated_nodeclaim_and_nodepool_workflows_run_again(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("005-e", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        for one in await own_product.open_workflows():
            if f"/{scope.name}" in one.id:
                await own_product.temporal.get_workflow_handle(one.id).terminate("005-e")
        await own_product.delete(NODE_CLAIMS.path(nodeclaim_name(claim)))
        await wait_until(
            lambda: scope.assert_nodeclaims_deleted([nodeclaim_name(claim)]), seconds=REPAIRED_WITHIN_SECONDS
        )
        coordinator = ids.nodepool(own_product.sandbox.plan.cluster_name, scope.name)
        await wait_until(partial(assert_open, own_product, coordinator), seconds=REPAIRED_WITHIN_SECONDS)


@pytest.mark.row("005-e")
async def test_terminated_workflow_is_listed_until_a_worker_starts_it(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("005-e", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        handle = await scope.workflow_handle(nodeclaim_name(claim))
        await own_product.stop_workers()
        await handle.terminate("005-e")
        await wait_until(lambda: assert_stopped_workflows(own_product, [handle.id]))
        await own_product.resume_worker()
        await wait_until(lambda: assert_stopped_workflows(own_product, []), seconds=REPAIRED_WITHIN_SECONDS)


@pytest.mark.row("005-g")
async def test_drain_ends_although_events_are_forbidden_and_its_workflow_continues_as_new(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("005-g", after="Never") as scope:
        budget = pod_disruption_budget(scope.name, maxUnavailable=0)
        await scope.apply_manifest(budget)
        name = nodeclaim_name((await scope.run_pods(1))[0])
        for method in ("POST", "PATCH"):
            scope.inject_api_fault(ErrorResponse(403), "/events", method)
        handle = await scope.workflow_handle(name)
        first_run = (await handle.describe()).run_id
        await own_product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_conditions_mention(name, "maxUnavailable 0"))
        for _ in range(CONTINUE_AS_NEW_AT_EVENTS):
            await handle.signal("observe", ObservedNodeClaim(number=0))
        await wait_until(partial(assert_other_run, own_product, handle.id, first_run))
        path = POD_DISRUPTION_BUDGETS.path(budget["metadata"]["name"], namespace="default")
        await own_product.delete(path)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def assert_other_run(product: DedicatedProduct, workflow_id: str, run_id: str) -> None:
    description = await product.temporal.get_workflow_handle(workflow_id).describe()
    assert description.run_id != run_id, "it has not continued as new"


async def assert_stopped_workflows(product: DedicatedProduct, expected: list[str]) -> None:
    found = await list_stopped_workflows(product.temporal, product.sandbox.plan.cluster_name)
    assert [one.workflow_id for one in found] == expected


async def for_each_singleton(
    product: DedicatedProduct, act: Callable[[WorkflowHandle[object, object]], Awaitable[None]]
) -> None:
    for workflow_id in list_singletons(product.sandbox.plan.cluster_name):
        await act(product.temporal.get_workflow_handle(workflow_id))


async def assert_open(product: DedicatedProduct, *workflow_ids: str) -> None:
    for workflow_id in workflow_ids:
        assert await is_open(product.temporal, workflow_id), f"{workflow_id} does not run"
