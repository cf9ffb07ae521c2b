"""Many concurrent launches: few calls within EC2's rate limit, and one instance for every NodeClaim.

`TENURE_LAUNCHES` is the number of NodeClaims. The full sizes are 1000 for the first two tests and 500 for the last;
they take several minutes.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import ceil

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.base import instance_id_of
from tenure.sandbox.nodes.fault_rules import NeverRegister
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import wait_until
from tests.support.product.objects import OF_TEST, node_claim
from tests.support.product.product import DedicatedProduct, InstalledProduct

LAUNCHES = int(os.environ.get("TENURE_LAUNCHES", "30"))
LAUNCH_TIMEOUT_SECONDS = 300.0 + LAUNCHES
"""Seconds. A machine with other tests takes over a minute to replay the workflows after a kill, and then plans."""
REFILL_RATE = 2.0


async def test_nodeclaims_of_one_plan_launch_in_few_calls(own_product: DedicatedProduct) -> None:
    async with pending_pods(own_product, LAUNCHES) as scope:
        before = count_create_fleet(own_product)
        await own_product.ensure_worker()
        await wait_until(lambda: assert_launched_once(scope, LAUNCHES), seconds=LAUNCH_TIMEOUT_SECONDS)
        call_count = count_create_fleet(own_product) - before
        assert call_count <= ceil(LAUNCHES / 100), f"{call_count} calls for {LAUNCHES} instances"


async def test_nodeclaims_created_at_once_launch_in_few_calls(own_product: DedicatedProduct) -> None:
    async with own_product.scope("made") as scope:
        await scope.inject_node_fault(NeverRegister())
        await own_product.stop_workers()
        names = [f"{scope.name}-{number}" for number in range(LAUNCHES)]
        await for_each(names, lambda name: create_nodeclaim(scope, name, pool=scope.name))
        before = count_create_fleet(own_product)
        # On a busy machine the worker observes the last NodeClaims long after the first.
        await own_product.ensure_worker(BATCH_IDLE_DURATION="5s", BATCH_MAX_DURATION="2m")
        await wait_until(lambda: assert_launched_once(scope, LAUNCHES), seconds=LAUNCH_TIMEOUT_SECONDS)
        call_count = count_create_fleet(own_product) - before
        assert call_count <= ceil(LAUNCHES / 100), f"{call_count} calls for {LAUNCHES} instances"


async def test_nodeclaims_deleted_during_the_batch_window_complete_at_once(own_product: DedicatedProduct) -> None:
    """They complete long before their launch deadline, with and without a finalizer."""
    async with own_product.scope("regretted") as scope:
        await own_product.ensure_worker(BATCH_IDLE_DURATION="15s", BATCH_MAX_DURATION="2m")
        names = [f"{scope.name}-{number}" for number in range(2)]
        for name, has_finalizer in zip(names, (True, False), strict=True):
            await create_nodeclaim(scope, name, pool=scope.name, has_finalizer=has_finalizer)
        nodeclaims = [await wait_until(partial(scope.nodeclaim_workflow, name)) for name in names]
        for name in names:
            await own_product.delete(NODE_CLAIMS.path(name))
        ended = await asyncio.wait_for(
            asyncio.gather(*(own_product.nodeclaim_workflows.fetch_outcome(nodeclaim) for nodeclaim in nodeclaims)), 60
        )
        assert [one.reason for one in ended] == ["Deleted", "Deleted"] and scope.launched_instances() == []


@pytest.mark.timeout(4 * LAUNCH_TIMEOUT_SECONDS)
async def test_every_nodeclaim_launches_once_under_throttling_and_a_killed_worker(
    own_product: DedicatedProduct,
) -> None:
    """Half of the NodeClaims belong to a NodePool; the others are standalone, and each needs its own call. None may
    reach its launch deadline while calls wait.
    """
    async with pending_pods(own_product, LAUNCHES // 2) as scope:
        standalone = [f"{scope.name}-hand-{number}" for number in range(LAUNCHES // 2)]
        own_product.aws.set_rate("CreateFleet", REFILL_RATE, REFILL_RATE)
        try:
            await for_each(standalone, lambda name: create_nodeclaim(scope, name))
            await own_product.ensure_worker(LAUNCH_TIMEOUT="30m")
            await wait_until(
                lambda: assert_some_launched(own_product, standalone, len(standalone) // 3),
                seconds=LAUNCH_TIMEOUT_SECONDS,
            )
            await own_product.kill_worker()
            await own_product.resume_worker()
            await wait_until(lambda: assert_launched_once(scope, LAUNCHES // 2), seconds=LAUNCH_TIMEOUT_SECONDS)
            await wait_until(lambda: assert_each_launched_once(own_product, standalone), seconds=LAUNCH_TIMEOUT_SECONDS)
        finally:
            own_product.aws.clear_rates()


@asynccontextmanager
async def pending_pods(product: DedicatedProduct, pods: int) -> AsyncIterator[ClusterScope]:
    """This many pods, which each need a node, are pending before a worker starts. Their instances never register."""
    async with product.scope("launches") as scope:
        await scope.inject_node_fault(NeverRegister())
        await product.stop_workers()
        await scope.create_deployment(pods)
        await wait_until(lambda: assert_pods_pending(scope, pods), seconds=LAUNCH_TIMEOUT_SECONDS)
        yield scope


async def create_nodeclaim(scope: ClusterScope, name: str, *, pool: str = "", has_finalizer: bool = False) -> None:
    """Create a NodeClaim outside of a plan. `has_finalizer`: it has the termination finalizer from creation."""
    manifest = node_claim(name)
    manifest["metadata"] |= {"finalizers": [labels.TERMINATION_FINALIZER]} if has_finalizer else {}
    manifest["metadata"]["labels"] = {labels.NODEPOOL: pool} if pool else {OF_TEST: f"{scope.name}-hand"}
    await scope.apply_manifest(manifest)


async def for_each(names: Sequence[str], call: Callable[[str], Awaitable[None]]) -> None:
    """Call up to 16 at a time."""
    semaphore = asyncio.Semaphore(16)

    async def one(name: str) -> None:
        async with semaphore:
            await call(name)

    await asyncio.gather(*(one(name) for name in names))


async def assert_pods_pending(scope: ClusterScope, count: int) -> None:
    pods = await scope.pods()
    assert len(pods) == count and all(pod["status"].get("conditions") for pod in pods), f"{len(pods)} pods"


async def assert_launched_once(scope: ClusterScope, count: int) -> None:
    """The NodePool has this many NodeClaims and instances, one to one."""
    pool = f"{labels.NODEPOOL}={scope.name}"
    claims = await scope.product.items(NODE_CLAIMS.path(), label=pool)
    instances = [instance_id_of(claim.get("status", {}).get("providerID", "")) for claim in claims]
    launched = [one for one in scope.launched_instances() if one]
    assert len(claims) == len(launched) == count, f"{len(claims)} claims, {len(launched)} instances"
    assert sorted(instances) == sorted(launched), "NodeClaims and instances do not match"


async def assert_some_launched(product: InstalledProduct, names: list[str], count: int) -> None:
    found = sum(instances_by_nodeclaim(product, names).values())
    assert found >= count, f"{found} launched"


async def assert_each_launched_once(product: InstalledProduct, names: list[str]) -> None:
    launched = instances_by_nodeclaim(product, names)
    assert set(launched.values()) <= {1}, f"launched twice: {[name for name, n in launched.items() if n > 1]}"
    missing = [name for name in names if not launched[name]]
    assert not missing, f"{len(missing)} were not launched, such as {missing[:3]}"


def count_create_fleet(product: InstalledProduct) -> int:
    """Count CreateFleet calls without the dry runs of EC2NodeClass validation."""
    found = product.aws.get_counters().get("ec2:CreateFleet", {})
    return int(found.get("count", 0)) - int(found.get("codes", {}).get("DryRunOperation", 0))


def instances_by_nodeclaim(product: InstalledProduct, names: list[str]) -> Counter[str]:
    """Number of instances that EC2 launched for each NodeClaim."""
    found = Counter[str]()
    for fleet in product.aws.list_fleets():
        found[fleet["tags"].get(labels.TAG_NODECLAIM, "")] += len(fleet["instances"])
    return Counter({name: found[name] for name in names})
