"""Temporal or the API server is away for a while: nodes keep running, nothing is disrupted, all goes on afterwards.

`TENURE_OUTAGE` is Temporal's outage in seconds; the API server's is half of it. `make chaos` takes the full 120, and
one after the other; by default both are away at once, for as long as tells something.
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
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.product import DedicatedProduct
from tests.support.product.scene import ClusterScope, object_names

TEMPORAL, API_SERVER, SCHEDULER = "temporal", "kube-apiserver", "kube-scheduler"
SECONDS = float(os.environ.get("TENURE_OUTAGE", "30"))
TIMEOUT_SECONDS = 150.0 + SECONDS
SLOWLY = 20.0
"""Seconds more until a node is there: by then the kube-scheduler is away."""
pytestmark = pytest.mark.timeout(600 + 3 * SECONDS)
at_length = pytest.mark.skipif("TENURE_OUTAGE" not in os.environ, reason="make chaos takes one after the other")


@at_length
async def test_while_temporal_is_away_nodes_run_and_pods_wait(product: DedicatedProduct) -> None:
    async with _nodepools_under_test(product) as (steady, grows, drains):
        async with _outage(product, TEMPORAL):
            await grows.scale_deployment(2)
            await _assert_pods_unchanged(steady, SECONDS)
        await _assert_all_resume(steady, grows, drains)


@at_length
async def test_while_the_api_server_is_away_nodes_run_and_launches_wait(product: DedicatedProduct) -> None:
    async with _nodepools_under_test(product) as (steady, grows, drains):
        await grows.scale_deployment(2)
        await wait_until(lambda: grows.assert_newest_nodeclaim(2))
        async with _outage(product, API_SERVER):
            await asyncio.sleep(SECONDS / 2)
            assert len(steady.alive_instances()) == 1
        await _assert_all_resume(steady, grows, drains)


async def test_while_both_are_away_at_once_nodes_run(product: DedicatedProduct) -> None:
    async with _nodepools_under_test(product) as (steady, grows, drains):
        await grows.scale_deployment(2)
        async with _outage(product, TEMPORAL):
            async with _outage(product, API_SERVER):
                await asyncio.sleep(SECONDS / 2)
            await asyncio.sleep(SECONDS / 2)
            assert len(steady.alive_instances()) == 1
        await _assert_all_resume(steady, grows, drains)


@pytest.mark.row("001-k")
async def test_while_the_kube_scheduler_is_away_a_node_that_came_up_waits_for_its_pod(
    product: DedicatedProduct,
) -> None:
    """For longer than a plan's answer is good for, in a pool whose empty nodes go after a second; it says whom for."""
    await product.ensure_worker()
    async with product.scope("unplaced") as scope:
        await scope.inject_node_fault(SlowBoot(seconds=SLOWLY))
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
    """And is the only one."""
    assert await scope.assert_newest_nodeclaim(1) == claim
    assert (await scope.nodeclaim_state(claim)).phase is Phase.READY


@asynccontextmanager
async def _nodepools_under_test(
    product: DedicatedProduct,
) -> AsyncIterator[tuple[ClusterScope, ClusterScope, ClusterScope]]:
    """A node that runs, one whose pool is to grow, and one whose drain is held up; the worker lives through it all."""
    worker = await product.ensure_worker()
    async with product.scope("steady") as steady, product.scope("grows") as grows, product.scope("drains") as drains:
        await asyncio.gather(steady.run_pods(1), grows.run_pods(1), drains.run_pods(1))
        await _annotate_do_not_disrupt(drains, "true")
        (claim,) = await drains.nodeclaims()
        await product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        await wait_until(lambda: _assert_draining(drains))
        yield steady, grows, drains
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

    async def runs() -> None:
        await scope.assert_pods_running(1)
        assert [pod["metadata"]["uid"] for pod in await scope.pods()] == before, f"{scope.name} has other pods"

    await assert_throughout(runs, seconds=seconds)


async def _assert_all_resume(steady: ClusterScope, grows: ClusterScope, drains: ClusterScope) -> None:
    """The pod gets its one node; the drain is still held, and ends once it is let go; what ran runs."""
    await wait_until(lambda: grows.assert_pods_running(2), seconds=TIMEOUT_SECONDS)
    await wait_until(lambda: grows.assert_nodes_initialized(2), seconds=TIMEOUT_SECONDS)
    await grows.wait_until_nodes_launched(2)
    drained = object_names(await drains.nodeclaims())[0]
    await wait_until(lambda: _assert_draining(drains), seconds=TIMEOUT_SECONDS)
    await _annotate_do_not_disrupt(drains, "false")
    await wait_until(lambda: drains.assert_nodeclaims_deleted([drained]), seconds=TIMEOUT_SECONDS)
    await wait_until(lambda: drains.assert_pods_running(1), seconds=TIMEOUT_SECONDS)
    await drains.wait_until_nodes_launched(2)
    await _assert_pods_unchanged(steady, 2)
    await steady.assert_one_node_launched()


async def _annotate_do_not_disrupt(scope: ClusterScope, value: str) -> None:
    """A budget would not do: of a node that is Unknown after an outage Kubernetes lets pods be evicted all the same."""
    (pod,) = object_names(await scope.pods())
    path = PODS.path(pod, namespace="default")
    await scope.product.patch(path, {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: value}}})


async def _assert_draining(scope: ClusterScope) -> None:
    nodeclaims = await scope.nodeclaim_workflows()
    assert [nodeclaim.phase for nodeclaim in nodeclaims[:1]] == [Phase.DRAIN.value], nodeclaims
    await scope.assert_pods_running(1)
