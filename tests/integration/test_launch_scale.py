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
from tests.support.product.eventually import eventually
from tests.support.product.objects import OF_TEST, node_claim
from tests.support.product.product import OwnProduct, Product
from tests.support.product.scene import Scene

LAUNCHES = int(os.environ.get("TENURE_LAUNCHES", "60"))
PATIENCE = 150.0 + LAUNCHES
"""Seconds; a machine that is busy with other things starts some ten workflows a second."""
REFILL = 2.0


async def test_claims_of_a_pool_that_come_at_once_launch_together(own_product: OwnProduct) -> None:
    async with crowd(own_product, LAUNCHES) as scene:
        before = calls(own_product)
        await own_product.work()
        await eventually(lambda: launched_once(scene, LAUNCHES), seconds=PATIENCE)
        made = calls(own_product) - before
        assert made <= ceil(LAUNCHES / 100), f"{made} calls for {LAUNCHES} instances"


async def test_claims_that_somebody_makes_for_a_pool_at_once_launch_together(own_product: OwnProduct) -> None:
    async with own_product.scene("made") as scene:
        await scene.trouble(NeverRegister())
        await own_product.rest()
        names = [f"{scene.name}-{number}" for number in range(LAUNCHES)]
        await each(names, lambda name: make(scene, name, pool=scene.name))
        before = calls(own_product)
        # The worker of a busy machine is told of the last ones long after the first.
        await own_product.work(BATCH_IDLE_DURATION="5s", BATCH_MAX_DURATION="2m")
        await eventually(lambda: launched_once(scene, LAUNCHES), seconds=PATIENCE)
        made = calls(own_product) - before
        assert made <= ceil(LAUNCHES / 100), f"{made} calls for {LAUNCHES} instances"


async def test_claims_that_are_deleted_while_others_are_waited_for_are_over_at_once(own_product: OwnProduct) -> None:
    """Long before their launch deadline, and also those that no finalizer keeps."""
    async with own_product.scene("regretted") as scene:
        await own_product.work(BATCH_IDLE_DURATION="5s", BATCH_MAX_DURATION="2m")
        names = [f"{scene.name}-{number}" for number in range(2)]
        for name, kept in zip(names, (True, False), strict=True):
            await make(scene, name, pool=scene.name, kept=kept)
        lives = [await eventually(partial(scene.life, name)) for name in names]
        for name in names:
            await own_product.delete(NODE_CLAIMS.path(name))
        ended = await asyncio.wait_for(asyncio.gather(*(own_product.lives.outcome(life) for life in lives)), 60)
        assert [one.reason for one in ended] == ["Deleted", "Deleted"] and scene.launched() == []


async def test_under_a_slow_refill_every_claim_launches_once_though_the_worker_is_killed(
    own_product: OwnProduct,
) -> None:
    """Claims of a pool, and as many that people made one by one, of which each is a call of its own."""
    async with crowd(own_product, LAUNCHES // 2) as scene:
        hands = [f"{scene.name}-hand-{number}" for number in range(LAUNCHES // 2)]
        own_product.aws.set_rate("CreateFleet", REFILL, REFILL)
        try:
            await each(hands, lambda name: make(scene, name))
            await own_product.work()
            await eventually(lambda: some_launched(own_product, hands, len(hands) // 3), seconds=PATIENCE)
            await own_product.kill()
            await own_product.go_on()
            await eventually(lambda: launched_once(scene, LAUNCHES // 2), seconds=PATIENCE)
            await eventually(lambda: hands_launched_once(own_product, hands), seconds=PATIENCE)
        finally:
            own_product.aws.clear_rates()


@asynccontextmanager
async def crowd(product: OwnProduct, pods: int) -> AsyncIterator[Scene]:
    """So many pods that need a node each, all of them pending before a worker looks; their machines never join."""
    async with product.scene("launches") as scene:
        await scene.trouble(NeverRegister())
        await product.rest()
        await scene.deploy(pods)
        await eventually(lambda: pods_wait(scene, pods), seconds=PATIENCE)
        yield scene


async def make(scene: Scene, name: str, *, pool: str = "", kept: bool = False) -> None:
    """A NodeClaim that no plan made. `kept`: by a finalizer, from its birth."""
    manifest = node_claim(name)
    manifest["metadata"] |= {"finalizers": [labels.TERMINATION_FINALIZER]} if kept else {}
    manifest["metadata"]["labels"] = {labels.NODEPOOL: pool} if pool else {OF_TEST: f"{scene.name}-hand"}
    await scene.make(manifest)


async def each(names: Sequence[str], call: Callable[[str], Awaitable[None]]) -> None:
    """Some at a time."""
    room = asyncio.Semaphore(16)

    async def one(name: str) -> None:
        async with room:
            await call(name)

    await asyncio.gather(*(one(name) for name in names))


async def pods_wait(scene: Scene, count: int) -> None:
    pods = await scene.pods()
    assert len(pods) == count and all(pod["status"].get("conditions") for pod in pods), f"{len(pods)} pods"


async def launched_once(scene: Scene, count: int) -> None:
    """So many claims of the pool, each with an instance that nobody else has, and no other instance."""
    pool = f"{labels.NODEPOOL}={scene.name}"
    claims = await scene.product.items(NODE_CLAIMS.path(), label=pool)
    instances = [claim.get("status", {}).get("providerID", "").rpartition("/")[2] for claim in claims]
    launched = [one for one in scene.launched() if one]
    assert len(claims) == len(launched) == count, f"{len(claims)} claims, {len(launched)} instances"
    assert sorted(instances) == sorted(launched), "claims and instances are not one to one"


async def some_launched(product: Product, names: list[str], count: int) -> None:
    found = sum(by_claim(product, names).values())
    assert found >= count, f"{found} launched"


async def hands_launched_once(product: Product, names: list[str]) -> None:
    launched = by_claim(product, names)
    assert set(launched.values()) <= {1}, f"launched twice: {[name for name, n in launched.items() if n > 1]}"
    missing = [name for name in names if not launched[name]]
    assert not missing, f"{len(missing)} are not launched, such as {missing[:3]}"


def calls(product: Product) -> int:
    """Of CreateFleet, but for trials of an EC2NodeClass, which launch nothing."""
    found = product.aws.counters().get("ec2:CreateFleet", {})
    return int(found.get("count", 0)) - int(found.get("codes", {}).get("DryRunOperation", 0))


def by_claim(product: Product, names: list[str]) -> Counter[str]:
    """How many instances EC2 ever gave each."""
    found = Counter[str]()
    for fleet in product.aws.launches():
        found[fleet["tags"].get(labels.TAG_NODECLAIM, "")] += len(fleet["instances"])
    return Counter({name: found[name] for name in names})
