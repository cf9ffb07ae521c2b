"""A worker whose host has a wrong clock, or does not resolve names for a while, does no harm and reports it.

`TENURE_OUTAGE` is the time without DNS in seconds, after the worker has reported it; `make chaos` uses 120.
"""

import os
from pathlib import Path

from tests.support import faulty_host
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import Object
from tests.support.product.product import DedicatedProduct

PYTHONPATH = str(Path(faulty_host.__file__).parent)
UNREACHABLE = "tenure_endpoint_unreachable"
OUTAGE_SECONDS = float(os.environ.get("TENURE_OUTAGE", "5"))


async def test_clock_that_is_ten_minutes_ahead_consolidates_no_node_early(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(PYTHONPATH=PYTHONPATH, FAULTY_HOST_CLOCK_SECONDS="600")
    async with own_product.scope("clock", after="30s") as scope:
        (claim,) = await scope.run_pods(1)
        await wait_until(lambda: assert_reported(own_product, "s ahead of the clock of the Kubernetes API server"))
        await scope.scale_deployment(0)
        await assert_throughout(lambda: assert_not_deleting(scope), seconds=15)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([claim["metadata"]["name"]]))


async def test_worker_without_dns_keeps_its_nodes_and_launches_afterwards(
    own_product: DedicatedProduct, tmp_path: Path
) -> None:
    fault = tmp_path / "dns-fault"
    await own_product.ensure_worker(PYTHONPATH=PYTHONPATH, FAULTY_HOST_DNS=str(fault))
    async with own_product.scope("dns", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        fault.touch()
        await scope.scale_deployment(2)
        await wait_until(lambda: assert_unreachable(own_product))
        await assert_throughout(lambda: assert_node_unchanged(scope, claim), seconds=OUTAGE_SECONDS)
        fault.unlink()
        await wait_until(lambda: scope.assert_pods_running(2))
        await wait_until(lambda: assert_reachable(own_product))
        assert len(scope.launched_instances()) == 2


async def assert_reported(product: DedicatedProduct, text: str) -> None:
    _, report = await product.run_cli("stuck")
    assert text in str(report["invalidObjects"]), report


async def assert_node_unchanged(scope: ClusterScope, claim: Object) -> None:
    claims = {one["metadata"]["uid"]: one["metadata"] for one in await scope.nodeclaims()}
    assert claim["metadata"]["uid"] in claims
    assert not any("deletionTimestamp" in one for one in claims.values())
    assert len(scope.alive_instances()) == len(scope.launched_instances())


async def assert_not_deleting(scope: ClusterScope) -> None:
    (claim,) = await scope.nodeclaims()
    assert "deletionTimestamp" not in claim["metadata"]


async def assert_unreachable(product: DedicatedProduct) -> None:
    assert unreachable_endpoints(await product.metric_samples())


async def assert_reachable(product: DedicatedProduct) -> None:
    found = unreachable_endpoints(await product.metric_samples())
    assert not found, found


def unreachable_endpoints(samples: list[str]) -> list[str]:
    return [one for one in samples if one.startswith(UNREACHABLE) and not one.endswith((" 0", " 0.0"))]
