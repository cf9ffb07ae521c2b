"""Promise 1, with the worker killed or stopped while a node becomes empty."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tenure.model.nodeclaim.state import Phase
from tenure.sandbox.fault_proxy import Cut, Delay
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct
from tests.support.product.shared_sandbox import FaultRule

NEVER = 3600.0
"""Seconds that a request is delayed, longer than the test: the worker is killed before."""
LONG = timedelta(seconds=120)
"""consolidateAfter of a node whose worker is stopped; a restart takes much less, also on a busy machine."""


@pytest.mark.row("000-d")
async def test_worker_killed_between_taint_and_deletion_deletes_once(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("000-d") as scope:
        (claim,) = await scope.run_pods(1)
        path, node = f"/nodeclaims/{claim['metadata']['name']}$", claim["status"]["nodeName"]
        delete_fault = scope.inject_api_fault(Delay(NEVER), path, "DELETE")
        await scope.scale_deployment(0)
        await wait_until(lambda: _assert_tainted_and_not_deleted(scope, node, delete_fault))
        untaint_fault = scope.inject_api_fault(Cut(), f"/nodes/{node}$", "PATCH")
        await own_product.kill_worker()
        await scope.assert_nodeclaims_exist(object_names([claim]))
        await scope.assert_node_disrupted(node)
        scope.remove_api_fault(delete_fault)
        scope.remove_api_fault(untaint_fault)
        deletions = scope.inject_api_fault(Delay(0), path, "DELETE")
        await own_product.resume_worker()
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        assert deletions.hits == 1
        await scope.assert_one_node_launched()


@pytest.mark.row("000-l")
async def test_consolidate_after_elapses_without_worker(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("000-l", after=f"{LONG.total_seconds():g}s") as scope:
        (claim,) = await scope.run_pods(1)
        await scope.scale_deployment(0)
        since = await wait_until(lambda: _empty_since(scope))
        await own_product.stop_workers()
        await asyncio.sleep((since + LONG - datetime.now(UTC)).total_seconds())
        await scope.assert_nodeclaims_exist(object_names([claim]))
        started = datetime.now(UTC)
        await own_product.resume_worker()
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        (nodeclaim,) = await scope.nodeclaim_workflows()
        (drained,) = [
            step.at
            for step in (await own_product.nodeclaim_workflows.fetch_outcome(nodeclaim)).history
            if step.phase is Phase.DRAIN
        ]
        assert drained - started < LONG, "consolidateAfter was counted from the start of the worker"


async def _assert_tainted_and_not_deleted(scope: ClusterScope, node: str, delete_fault: FaultRule) -> None:
    await scope.assert_node_disrupted(node)
    assert delete_fault.hits, "the NodeClaim's deletion was not requested yet"


async def _empty_since(scope: ClusterScope) -> datetime:
    (nodeclaim,) = await scope.nodeclaim_workflows()
    state = await scope.nodeclaim_state(nodeclaim.name)
    assert state.observed.empty and state.observed.empty_since, state.observed
    return state.observed.empty_since
