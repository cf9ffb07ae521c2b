"""Temporal's database is lost and replaced by an empty one while a worker runs: `tenure rebuild`.

A sandbox of its own, since the other tests' state would be lost too.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from temporalio.service import RPCError

from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.nodeclaim.state import Phase
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Plan
from tests.support.product.cluster_scope import object_names
from tests.support.product.drains import annotate_do_not_disrupt
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.product import DedicatedProduct
from workflows import ids

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def own_sandbox(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("rebuilt"), plan=plan) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def losable_product(own_sandbox: Sandbox) -> AsyncIterator[DedicatedProduct]:
    async with DedicatedProduct(own_sandbox) as product:
        yield product


async def test_workflows_are_rebuilt_from_the_cluster_without_new_launches(losable_product: DedicatedProduct) -> None:
    product = losable_product
    await product.ensure_worker()
    async with product.scope("steady", after="Never") as steady, product.scope("drains", after="Never") as drains:
        await asyncio.gather(steady.run_pods(1), drains.run_pods(1))
        await annotate_do_not_disrupt(drains, "true")
        (retained,), (deleting,) = object_names(await steady.nodeclaims()), object_names(await drains.nodeclaims())
        await product.delete(NODE_CLAIMS.path(deleting))
        await wait_until(lambda: drains.assert_conditions_mention(deleting, "do-not-disrupt"))
        await asyncio.to_thread(product.own_sandbox.lose_temporal_data)
        await _assert_only_reported(product, retained, steady.name)
        code, found = await product.run_cli("rebuild")
        assert code == 0 and ("NodeClaim", retained) in _kinds_and_names(found) and {one["done"] for one in found}, (
            found
        )
        await wait_until(lambda: _assert_nothing_missing(product))
        await wait_until(lambda: steady.assert_in_phase(retained, Phase.READY))
        await wait_until(lambda: drains.assert_in_phase(deleting, Phase.DRAIN))
        await wait_until(product.watch_host)
        await assert_throughout(lambda: drains.assert_pods_running(1), seconds=3)
        await annotate_do_not_disrupt(drains, "false")
        await wait_until(lambda: drains.assert_nodeclaims_deleted([deleting]))
        await steady.scale_deployment(2)
        await wait_until(lambda: steady.assert_pods_running(2))
        await wait_until(lambda: drains.assert_pods_running(1))
        await wait_until(lambda: steady.assert_nodes_initialized(2))
        for scope in (steady, drains):
            await scope.wait_until_nodes_launched(2)
        assert retained in object_names(await steady.nodeclaims())
        assert await product.failed_workflows() == []


async def _assert_only_reported(product: DedicatedProduct, claim: str, pool: str) -> None:
    """The dry run reports what is missing, also by its exit code, and starts nothing."""
    code, found = await product.run_cli("rebuild", "--dry-run")
    assert code == 1
    assert _kinds_and_names(found) >= {
        ("NodeClaim", claim),
        ("NodePool", pool),
        ("Cluster", "watch"),
        ("Cluster", "garbage-collection"),
    }
    assert {one["done"] for one in found} == {None}
    with pytest.raises(RPCError, match="not found"):
        await product.temporal.get_workflow_handle(ids.watch(product.own_sandbox.plan.cluster_name)).describe()


async def _assert_nothing_missing(product: DedicatedProduct) -> None:
    """Visibility lags, so retry; workflows that already run are not started again."""
    found = await product.run_cli("rebuild")
    assert found == (0, []), found


def _kinds_and_names(found: list[dict[str, str]]) -> set[tuple[str, str]]:
    return {(one["kind"], one["name"]) for one in found}
