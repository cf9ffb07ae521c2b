"""A new build of the worker is promoted during a drain, as in a rollout, and a broken one is not."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio import activity, workflow
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.common import RawValue
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tenure.controller.temporal.promotion import Promotion, PromotionFailed, PromotionSettings
from tenure.controller.temporal.worker_versioning import Builds, deployment_config, read_builds
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.sandbox.processes import PartFailed
from tests.support import newer_build
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import annotate_do_not_disrupt
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct
from tests.support.product.worker_harness import WorkerUnderTest
from workflows import ids
from workflows.runner import CanaryWorkflow

OLD, NEW = "0.1.0", "0.2.0"
NEWER_RELEASE, NEW_FIELD = str(Path(newer_build.__file__).parent), "fieldOfNewerRelease"
CHECKS_SECONDS = 15
"""Longer than the interval at which a worker checks the current build."""


@pytest_asyncio.fixture(loop_scope="session")
async def versioned_product(product: DedicatedProduct) -> AsyncIterator[DedicatedProduct]:
    """Runs the old build. Afterwards none is current, so that unversioned workers of other tests get the tasks."""
    await product.ensure_worker(TEMPORAL_WORKER_BUILD_ID=OLD)
    yield product
    await product.stop_workers()
    plan = product.own_sandbox.plan
    await product.temporal.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=plan.namespace, deployment_name=ids.worker_deployment_name(plan.cluster_name), build_id=""
        ),
        retry=True,
    )


@pytest.mark.row("005-f")
async def test_promotion_completes_although_an_old_pod_restarts(versioned_product: DedicatedProduct) -> None:
    product = versioned_product
    old = product.worker
    async with product.scope("builds", after="Never") as scope:
        await scope.run_pods(1)
        deleting = await delete_protected_node(product, scope)
        new = product.add_worker(TEMPORAL_WORKER_BUILD_ID=NEW)
        rollout = asyncio.create_task(new.start())
        await wait_until(lambda: assert_has_workers(product, NEW))
        await wait_until(lambda: assert_waits_for_promotion(product, new))
        promotion = asyncio.create_task(
            product.run_cli(*("build", "promote", "--build", NEW, "--ramp-percentage", "50", "--ramp-duration", "20s"))
        )
        await wait_until(lambda: assert_routing(product, current=OLD, ramping=NEW))
        await product.kill_worker(old)
        old = product.add_worker(TEMPORAL_WORKER_BUILD_ID=OLD)
        await old.start()
        assert await promotion == (0, {"message": f"Build {NEW} is current.", "build": NEW})
        await rollout
        await product.kill_worker(old)
        restarted = product.add_worker(TEMPORAL_WORKER_BUILD_ID=OLD)
        never_ready = asyncio.create_task(restarted.start())
        await wait_until(lambda: assert_waits_for_promotion(product, restarted))
        await asyncio.sleep(CHECKS_SECONDS)
        await assert_routing(product, current=NEW, ramping="")
        assert await restarted.stop_gracefully() == 0
        with pytest.raises(PartFailed, match="ended with exit code 0"):
            await never_ready
        await finish_drain(scope, deleting)
        assert await product.failed_workflows() == []


async def delete_protected_node(product: DedicatedProduct, scope: ClusterScope) -> str:
    """The name of its NodeClaim, whose drain waits."""
    await annotate_do_not_disrupt(scope, "true")
    (deleting,) = object_names(await scope.nodeclaims())
    await product.delete(NODE_CLAIMS.path(deleting))
    await wait_until(lambda: scope.assert_conditions_mention(deleting, "do-not-disrupt"))
    return deleting


async def finish_drain(scope: ClusterScope, deleting: str) -> None:
    """Allow the eviction. The pod moves to a node that is launched once."""
    await annotate_do_not_disrupt(scope, "false")
    await wait_until(lambda: scope.assert_nodeclaims_deleted([deleting]))
    await wait_until(lambda: scope.assert_pods_running(1))
    await scope.wait_until_nodes_launched(2)


async def assert_has_workers(product: DedicatedProduct, build: str) -> None:
    assert build in (await read(product)).workers


async def assert_routing(product: DedicatedProduct, *, current: str, ramping: str) -> None:
    builds = await read(product)
    assert (builds.current, builds.ramping) == (current, ramping)


async def read(product: DedicatedProduct) -> Builds:
    return await read_builds(product.temporal, product.own_sandbox.plan.cluster_name)


async def assert_waits_for_promotion(product: DedicatedProduct, worker: WorkerUnderTest) -> None:
    response = await product.probe_response(worker)
    assert "waits for its promotion" in response, response


@pytest.mark.row("005-f")
async def test_rollback_continues_with_the_state_of_a_newer_release(versioned_product: DedicatedProduct) -> None:
    """The newer release launches a node and starts a drain. All objects that it writes to Temporal have a new field."""
    product = versioned_product
    old = product.worker
    async with product.scope("newer", after="Never") as scope:
        new = product.add_worker(TEMPORAL_WORKER_BUILD_ID=NEW, PYTHONPATH=NEWER_RELEASE)
        rollout = asyncio.create_task(new.start())
        await wait_until(lambda: assert_waits_for_promotion(product, new))
        assert await product.run_cli("build", "promote", "--build", NEW, "--ramp-duration", "0s") == (
            0,
            {"message": f"Build {NEW} is current.", "build": NEW},
        )
        await rollout
        assert await old.stop_gracefully() == 0
        await scope.run_pods(1)
        deleting = await delete_protected_node(product, scope)
        rolled_back = product.add_worker(TEMPORAL_WORKER_BUILD_ID=OLD)
        rollback = asyncio.create_task(rolled_back.start())
        await wait_until(lambda: assert_has_workers(product, OLD))
        assert await product.run_cli("build", "rollback") == (
            0,
            {"message": f"Build {OLD} is current.", "build": OLD},
        )
        await rollback
        assert await new.stop_gracefully() == 0
        cluster = product.own_sandbox.plan.cluster_name
        for workflow_id in ((await scope.workflow_handle(deleting)).id, ids.provisioning(cluster)):
            await assert_has_new_field(product, workflow_id)
        await finish_drain(scope, deleting)
        assert await product.failed_workflows() == []


async def assert_has_new_field(product: DedicatedProduct, workflow_id: str) -> None:
    """The history of one of the workflow's runs has objects of the newer release."""
    runs = [one async for one in product.temporal.list_workflows(f"WorkflowId = '{workflow_id}'")]
    handles = [product.temporal.get_workflow_handle(one.id, run_id=one.run_id) for one in runs]
    events = [event for handle in handles for event in (await handle.fetch_history()).events]
    assert any(NEW_FIELD.encode() in event.SerializeToString() for event in events), workflow_id


@workflow.defn(dynamic=True)
class BrokenWorkflow:
    """Every workflow type of a build whose tasks fail."""

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> None:
        raise RuntimeError("broken build")


@pytest.mark.row("005-f")
@pytest.mark.parametrize(
    ("workflows", "reason"),
    [((BrokenWorkflow,), "canary workflow failed"), ((CanaryWorkflow, BrokenWorkflow), "tasks of .* fail")],
    ids=["canary", "ramp"],
)
async def test_build_whose_tasks_fail_is_not_promoted(
    versioned_product: DedicatedProduct, workflows: Sequence[type], reason: str
) -> None:
    product, cluster = versioned_product, versioned_product.own_sandbox.plan.cluster_name
    async with product.scope("broken", after="Never") as scope, broken_worker(product, workflows):
        await scope.run_pods(1)
        settings = PromotionSettings(ramp_percentage=100, ramp_duration=timedelta(minutes=5))
        with pytest.raises(PromotionFailed, match=reason):
            await Promotion(product.temporal, cluster, NEW, settings, report=print).promote()
        await assert_routing(product, current=OLD, ramping="")
        deleting = await delete_protected_node(product, scope)
        await finish_drain(scope, deleting)
        assert set(await product.failed_workflows()) <= {ids.canary(cluster, NEW)}


@activity.defn(dynamic=True)
async def fail(args: Sequence[RawValue]) -> None:
    raise RuntimeError("broken build")


@asynccontextmanager
async def broken_worker(product: DedicatedProduct, workflows: Sequence[type]) -> AsyncIterator[None]:
    """Polls all queues: Temporal rejects a build that lacks an active queue of the current one."""
    cluster = product.own_sandbox.plan.cluster_name
    queues = (ids.task_queue, ids.coordinator_queue, ids.launch_queue, ids.drain_queue)
    async with AsyncExitStack() as stack:
        for queue in queues:
            worker = Worker(
                product.temporal,
                task_queue=queue(cluster),
                deployment_config=deployment_config(cluster, NEW),
                workflows=workflows,
                activities=[fail],
                workflow_runner=UnsandboxedWorkflowRunner(),
            )
            await stack.enter_async_context(worker)
        await wait_until(lambda: assert_has_workers(product, NEW))
        yield
