"""An outage of Temporal or the API server: nodes keep running, nothing is disrupted, and all work resumes afterwards.

`TENURE_OUTAGE` is Temporal's outage in seconds; the API server's is half of it. `make chaos` uses 120 seconds, with
separate outages. By default both are unavailable at once, for a shorter time.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure.apis import labels
from tenure.controller.cache.nominations import NOMINATION_TTL
from tenure.kube.client.resources import NODE_CLAIMS, PODS
from tenure.model.nodeclaim.state import Phase
from tenure.sandbox.nodes.fault_rules import SlowBoot
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.product import DedicatedProduct

TEMPORAL, API_SERVER, SCHEDULER = "temporal", "kube-apiserver", "kube-scheduler"
SECONDS = float(os.environ.get("TENURE_OUTAGE", "30"))
TIMEOUT_SECONDS = 150.0 + SECONDS
BOOT_SECONDS = 20.0
"""Additional seconds until the node registers; by then kube-scheduler is stopped."""
pytestmark = pytest.mark.timeout(600 + 3 * SECONDS)
full_outage = pytest.mark.skipif("TENURE_OUTAGE" not in os.environ, reason="only with TENURE_OUTAGE, as in make chaos")


@full_outage
async def test_nodes_run_and_pods_wait_during_a_temporal_outage(product: DedicatedProduct) -> None:
    async with _nodepools_under_test(product) as (steady, growing, draining):
        async with _outage(product, TEMPORAL):
            await growing.scale_deployment(2)
            await _assert_pods_unchanged(steady, SECONDS)
        await _assert_all_resume(steady, growing, draining)


@full_outage
async def test_nodes_run_and_launches_wait_during_an_api_server_outage(product: DedicatedProduct) -> None:
    async with _nodepools_under_test(product) as (steady, growing, draining):
        await growing.scale_deployment(2)
        await wait_until(lambda: growing.assert_newest_nodeclaim(2))
        async with _outage(product, API_SERVER):
            await asyncio.sleep(SECONDS / 2)
            assert len(steady.alive_instances()) == 1
        await _assert_all_resume(steady, growing, draining)


async def test_nodes_run_while_temporal_and_api_server_are_unavailable(product: DedicatedProduct) -> None:
    async with _nodepools_under_test(product) as (steady, growing, draining):
        await growing.scale_deployment(2)
        async with _outage(product, TEMPORAL):
            async with _outage(product, API_SERVER):
                await asyncio.sleep(SECONDS / 2)
            await asyncio.sleep(SECONDS / 2)
            assert len(steady.alive_instances()) == 1
        await _assert_all_resume(steady, growing, draining)


@pytest.mark.row("001-p")
async def test_new_node_waits_for_its_pod_during_a_kube_scheduler_outage(product: DedicatedProduct) -> None:
    """The outage is longer than a nomination lasts, and the NodePool's consolidateAfter is one second. The node
    names the pod.
    """
    await product.ensure_worker()
    async with product.scope("unplaced") as scope:
        await scope.inject_node_fault(SlowBoot(seconds=BOOT_SECONDS))
        await scope.create_deployment(1)
        await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        async with _outage(product, SCHEDULER):
            (claim,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
            await assert_throughout(
                lambda: _assert_only_ready_node(scope, claim["metadata"]["name"]),
                seconds=3 * NOMINATION_TTL.total_seconds(),
            )
            await wait_until(lambda: scope.assert_blocked_by(claim["metadata"]["name"], "not bound by kube-scheduler"))
            await wait_until(lambda: product.metric_value("tenure_pods_not_bound", nodepool=scope.name))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()
        await wait_until(lambda: _assert_unblocked(scope, claim["metadata"]["name"]))


async def _assert_unblocked(scope: ClusterScope, claim: str) -> None:
    assert not (await scope.nodeclaim_workflow(claim)).blocked_by


async def _assert_only_ready_node(scope: ClusterScope, claim: str) -> None:
    """The node is Ready, and is the only one."""
    assert await scope.assert_newest_nodeclaim(1) == claim
    assert (await scope.nodeclaim_state(claim)).phase is Phase.READY


@asynccontextmanager
async def _nodepools_under_test(
    product: DedicatedProduct,
) -> AsyncIterator[tuple[ClusterScope, ClusterScope, ClusterScope]]:
    """A running node, one whose pool scales up, and one with a blocked drain. The worker survives the outage."""
    worker = await product.ensure_worker()
    async with (
        product.scope("steady") as steady,
        product.scope("grows") as growing,
        product.scope("drains") as draining,
    ):
        await asyncio.gather(steady.run_pods(1), growing.run_pods(1), draining.run_pods(1))
        await _annotate_do_not_disrupt(draining, "true")
        (claim,) = await draining.nodeclaims()
        await product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        await wait_until(lambda: _assert_draining(draining))
        yield steady, growing, draining
        assert product.worker is worker and worker.is_running, f"the worker ended, see {worker.log}"


@asynccontextmanager
async def _outage(product: DedicatedProduct, part: str) -> AsyncIterator[None]:
    await asyncio.to_thread(product.own_sandbox.stop_part, part)
    try:
        yield
    finally:
        await asyncio.to_thread(product.own_sandbox.start_part, part)


async def _assert_pods_unchanged(scope: ClusterScope, seconds: float) -> None:
    before = [pod["metadata"]["uid"] for pod in await scope.pods()]

    async def pods_unchanged() -> None:
        await scope.assert_pods_running(1)
        assert [pod["metadata"]["uid"] for pod in await scope.pods()] == before, f"{scope.name} has other pods"

    await assert_throughout(pods_unchanged, seconds=seconds)


async def _assert_all_resume(steady: ClusterScope, growing: ClusterScope, draining: ClusterScope) -> None:
    """The new pod gets one node, the drain stays blocked until it is allowed, and the steady node still runs."""
    await wait_until(lambda: growing.assert_pods_running(2), seconds=TIMEOUT_SECONDS)
    await wait_until(lambda: growing.assert_nodes_initialized(2), seconds=TIMEOUT_SECONDS)
    await growing.wait_until_nodes_launched(2)
    drained = object_names(await draining.nodeclaims())[0]
    await wait_until(lambda: _assert_draining(draining), seconds=TIMEOUT_SECONDS)
    await _annotate_do_not_disrupt(draining, "false")
    await wait_until(lambda: draining.assert_nodeclaims_deleted([drained]), seconds=TIMEOUT_SECONDS)
    await wait_until(lambda: draining.assert_pods_running(1), seconds=TIMEOUT_SECONDS)
    await draining.wait_until_nodes_launched(2)
    await _assert_pods_unchanged(steady, 2)
    await steady.assert_one_node_launched()


async def _annotate_do_not_disrupt(scope: ClusterScope, value: str) -> None:
    """A budget would not block the drain: Kubernetes allows evictions from a node that is Unknown after an outage."""
    (pod,) = object_names(await scope.pods())
    path = PODS.path(pod, namespace="default")
    await scope.product.patch(path, {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: value}}})


async def _assert_draining(scope: ClusterScope) -> None:
    nodeclaims = await scope.nodeclaim_workflows()
    assert [nodeclaim.phase for nodeclaim in nodeclaims[:1]] == [Phase.DRAIN.value], nodeclaims
    await scope.assert_pods_running(1)
