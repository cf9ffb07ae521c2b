"""Another controller of NodeClaims renews its lease: Tenure does nothing, says so, and begins when the lease lapses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from tests.support.product.eventually import eventually, throughout
from tests.support.product.karpenter import HOLDER, NAME, RENEWED_EVERY, renew
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene


async def test_a_worker_waits_until_karpenters_lease_lapses(product: OwnProduct) -> None:
    await product.rest()
    async with product.scene("lease") as scene:
        await scene.deploy(1)
        async with _karpenter(product):
            worker = product.hire()
            starting = asyncio.create_task(worker.start())
            await eventually(lambda: _refuses(product))
            await throughout(lambda: _untouched(scene), seconds=4)
            assert not starting.done(), "the worker calls itself ready"
        await starting
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()
        async with _karpenter(product):
            await eventually(lambda: _nobody_watches(product))
            await scene.scale(2)
            await throughout(scene.one_node_was_bought, seconds=4)
        await eventually(lambda: scene.pods_run(2))
        await scene.nodes_were_bought(2)


@asynccontextmanager
async def _karpenter(product: OwnProduct) -> AsyncIterator[None]:
    """Its leader renews the lease inside the block."""
    await renew(product)
    renewing = asyncio.create_task(_keep_renewing(product))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _keep_renewing(product: OwnProduct) -> None:
    while True:
        await asyncio.sleep(RENEWED_EVERY)
        await renew(product)


async def _refuses(product: OwnProduct) -> None:
    try:
        said = await product.says(product.worker)
    except aiohttp.ClientError as error:
        raise AssertionError(f"the worker does not answer yet: {error}") from error
    assert HOLDER in said and NAME in said, said


async def _untouched(scene: Scene) -> None:
    assert not await scene.claims() and not scene.launched()
    assert not [one for one in await scene.product.open_workflows() if one.id.endswith(f"/{scene.name}")]


async def _nobody_watches(product: OwnProduct) -> None:
    hosts = await product.hosts()
    assert not hosts, f"{hosts} still watch"
