"""Many launches at once: few calls, none faster than EC2 refills, every claim launched once, none lost.

`TENURE_LAUNCHES` sets how many claims there are: 1000 for the first two and 500 for the last is what they are for, and
takes a machine some minutes.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import ceil

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.sandbox.nodes.fault_rules import NeverRegister
from tests.support.product.eventually import wait_until
from tests.support.product.objects import OF_TEST, node_claim
from tests.support.product.product import DedicatedProduct, InstalledProduct
from tests.support.product.scene import ClusterScope

LAUNCHES = int(os.environ.get("TENURE_LAUNCHES", "60"))
LAUNCH_TIMEOUT_SECONDS = 150.0 + LAUNCHES
"""Seconds; a machine that is busy with other things starts some ten workflows a second."""
REFILL_RATE = 2.0


async def test_claims_of_a_pool_that_come_at_once_launch_together(own_product: DedicatedProduct) -> None:
    async with pending_pods(own_product, LAUNCHES) as scope:
        before = count_create_fleet(own_product)
        await own_product.ensure_worker()
        await wait_until(lambda: assert_launched_once(scope, LAUNCHES), seconds=LAUNCH_TIMEOUT_SECONDS)
        made = count_create_fleet(own_product) - before
        assert made <= ceil(LAUNCHES / 100), f"{made} calls for {LAUNCHES} instances"


async def test_claims_that_somebody_makes_for_a_pool_at_once_launch_together(own_product: DedicatedProduct) -> None:
    async with own_product.scope("made") as scope:
        await scope.inject_node_fault(NeverRegister())
        await own_product.stop_workers()
        names = [f"{scope.name}-{number}" for number in range(LAUNCHES)]
        await for_each(names, lambda name: create_nodeclaim(scope, name, pool=scope.name))
        before = count_create_fleet(own_product)
        # The worker of a busy machine is told of the last ones long after the first.
        await own_product.ensure_worker(BATCH_IDLE_DURATION="5s", BATCH_MAX_DURATION="2m")
        await wait_until(lambda: assert_launched_once(scope, LAUNCHES), seconds=LAUNCH_TIMEOUT_SECONDS)
        made = count_create_fleet(own_product) - before
        assert made <= ceil(LAUNCHES / 100), f"{made} calls for {LAUNCHES} instances"


async def test_claims_that_are_deleted_while_others_are_waited_for_are_over_at_once(
    own_product: DedicatedProduct,
) -> None:
    """Long before their launch deadline, and also those that no finalizer keeps."""
    async with own_product.scope("regretted") as scope:
        await own_product.ensure_worker(BATCH_IDLE_DURATION="5s", BATCH_MAX_DURATION="2m")
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


async def test_under_a_slow_refill_every_claim_launches_once_though_the_worker_is_killed(
    own_product: DedicatedProduct,
) -> None:
    """Claims of a pool, and as many that people made one by one, of which each is a call of its own."""
    async with pending_pods(own_product, LAUNCHES // 2) as scope:
        hands = [f"{scope.name}-hand-{number}" for number in range(LAUNCHES // 2)]
        own_product.aws.set_rate("CreateFleet", REFILL_RATE, REFILL_RATE)
        try:
            await for_each(hands, lambda name: create_nodeclaim(scope, name))
            await own_product.ensure_worker()
            await wait_until(
                lambda: assert_some_launched(own_product, hands, len(hands) // 3), seconds=LAUNCH_TIMEOUT_SECONDS
            )
            await own_product.kill_worker()
            await own_product.resume_worker()
            await wait_until(lambda: assert_launched_once(scope, LAUNCHES // 2), seconds=LAUNCH_TIMEOUT_SECONDS)
            await wait_until(lambda: assert_each_launched_once(own_product, hands), seconds=LAUNCH_TIMEOUT_SECONDS)
        finally:
            own_product.aws.clear_rates()


@asynccontextmanager
async def pending_pods(product: DedicatedProduct, pods: int) -> AsyncIterator[ClusterScope]:
    """So many pods that need a node each, all of them pending before a worker looks; their machines never join."""
    async with product.scope("launches") as scope:
        await scope.inject_node_fault(NeverRegister())
        await product.stop_workers()
        await scope.create_deployment(pods)
        await wait_until(lambda: assert_pods_pending(scope, pods), seconds=LAUNCH_TIMEOUT_SECONDS)
        yield scope


async def create_nodeclaim(scope: ClusterScope, name: str, *, pool: str = "", has_finalizer: bool = False) -> None:
    """A NodeClaim that no plan made. `has_finalizer`: by a finalizer, from its birth."""
    manifest = node_claim(name)
    manifest["metadata"] |= {"finalizers": [labels.TERMINATION_FINALIZER]} if has_finalizer else {}
    manifest["metadata"]["labels"] = {labels.NODEPOOL: pool} if pool else {OF_TEST: f"{scope.name}-hand"}
    await scope.apply_manifest(manifest)


async def for_each(names: Sequence[str], call: Callable[[str], Awaitable[None]]) -> None:
    """Some at a time."""
    semaphore = asyncio.Semaphore(16)

    async def one(name: str) -> None:
        async with semaphore:
            await call(name)

    await asyncio.gather(*(one(name) for name in names))


async def assert_pods_pending(scope: ClusterScope, count: int) -> None:
    pods = await scope.pods()
    assert len(pods) == count and all(pod["status"].get("conditions") for pod in pods), f"{len(pods)} pods"


async def assert_launched_once(scope: ClusterScope, count: int) -> None:
    """So many claims of the pool, each with an instance that nobody else has, and no other instance."""
    pool = f"{labels.NODEPOOL}={scope.name}"
    claims = await scope.product.items(NODE_CLAIMS.path(), label=pool)
    instances = [claim.get("status", {}).get("providerID", "").rpartition("/")[2] for claim in claims]
    launched = [one for one in scope.launched_instances() if one]
    assert len(claims) == len(launched) == count, f"{len(claims)} claims, {len(launched)} instances"
    assert sorted(instances) == sorted(launched), "claims and instances are not one to one"


async def assert_some_launched(product: InstalledProduct, names: list[str], count: int) -> None:
    found = sum(instances_by_nodeclaim(product, names).values())
    assert found >= count, f"{found} launched"


async def assert_each_launched_once(product: InstalledProduct, names: list[str]) -> None:
    launched = instances_by_nodeclaim(product, names)
    assert set(launched.values()) <= {1}, f"launched twice: {[name for name, n in launched.items() if n > 1]}"
    missing = [name for name in names if not launched[name]]
    assert not missing, f"{len(missing)} are not launched, such as {missing[:3]}"


def count_create_fleet(product: InstalledProduct) -> int:
    """Of CreateFleet, but for trials of an EC2NodeClass, which launch nothing."""
    found = product.aws.get_counters().get("ec2:CreateFleet", {})
    return int(found.get("count", 0)) - int(found.get("codes", {}).get("DryRunOperation", 0))


def instances_by_nodeclaim(product: InstalledProduct, names: list[str]) -> Counter[str]:
    """How many instances EC2 ever gave each."""
    found = Counter[str]()
    for fleet in product.aws.list_fleets():
        found[fleet["tags"].get(labels.TAG_NODECLAIM, "")] += len(fleet["instances"])
    return Counter({name: found[name] for name in names})
