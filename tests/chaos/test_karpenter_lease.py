"""While Karpenter renews its leader Lease, Tenure does nothing and reports it; it starts when the Lease expires."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp

from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.karpenter import LEADER_LEASE
from tests.support.product.product import DedicatedProduct

HOLDER = "karpenter-7d9c4f2a"
LEASE_DURATION_SECONDS = 10
"""Seconds. The Lease is renewed every second, and later on a busy machine."""
RENEW_INTERVAL_SECONDS = 1.0


async def test_worker_waits_until_karpenters_lease_expires(product: DedicatedProduct) -> None:
    await product.stop_workers()
    async with product.scope("lease") as scope:
        await scope.create_deployment(1)
        async with _karpenter_leading(product):
            worker = product.add_worker()
            starting = asyncio.create_task(worker.start())
            await wait_until(lambda: _assert_leader_conflict(product))
            await assert_throughout(lambda: _assert_untouched(scope), seconds=4)
            assert not starting.done(), "the worker became ready"
        await starting
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()
        async with _karpenter_leading(product):
            await wait_until(lambda: _assert_no_watch_host(product))
            await scope.scale_deployment(2)
            await assert_throughout(scope.assert_one_node_launched, seconds=4)
        await wait_until(lambda: scope.assert_pods_running(2))
        await scope.wait_until_nodes_launched(2)


@asynccontextmanager
async def _karpenter_leading(product: DedicatedProduct) -> AsyncIterator[None]:
    """Karpenter's leader renews the Lease inside the block."""
    await _renew_lease(product)
    renewing = asyncio.create_task(_renew_repeatedly(product))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _renew_repeatedly(product: DedicatedProduct) -> None:
    while True:
        await asyncio.sleep(RENEW_INTERVAL_SECONDS)
        await _renew_lease(product)


async def _renew_lease(product: DedicatedProduct) -> None:
    spec = {
        "holderIdentity": HOLDER,
        "leaseDurationSeconds": LEASE_DURATION_SECONDS,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
    await product.kube.apply(lease | {"metadata": {"name": LEADER_LEASE, "namespace": "kube-system"}})


async def _assert_leader_conflict(product: DedicatedProduct) -> None:
    try:
        message = await product.probe_response(product.worker)
    except aiohttp.ClientError as error:
        raise AssertionError(f"the worker does not respond yet: {error}") from error
    assert HOLDER in message and LEADER_LEASE in message, message


async def _assert_untouched(scope: ClusterScope) -> None:
    assert not await scope.nodeclaims() and not scope.launched_instances()
    assert not [one for one in await scope.product.open_workflows() if one.id.endswith(f"/{scope.name}")]


async def _assert_no_watch_host(product: DedicatedProduct) -> None:
    hosts = await product.watch_hosts()
    assert not hosts, f"{hosts} still host the watch"
