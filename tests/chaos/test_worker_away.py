"""The world changes while no worker is there: when one is back, it catches up with all of it."""

from collections.abc import AsyncGenerator

from kube.resources import NODE_CLAIMS
from tests.integration.eventually import eventually
from tests.integration.objects import node_pool
from tests.integration.product import Product
from tests.integration.scene import names
from tests.scenarios.acts import AWAY


@AWAY.scenario
async def test_pods_that_came_meanwhile_get_nodes_and_pods_that_went_leave_none(
    product: Product,
) -> AsyncGenerator[None, None]:
    async with product.scene("grows") as grows, product.scene("shrinks") as shrinks:
        await grows.run(1)
        left = await shrinks.run(1)
        yield
        await grows.scale(2)
        await shrinks.scale(0)
        yield
        await eventually(lambda: grows.pods_run(2))
        await grows.nodes_were_bought(2)
        await eventually(lambda: shrinks.claims_are_gone(names(left)))


@AWAY.scenario
async def test_a_claim_that_was_deleted_meanwhile_goes_and_one_that_was_made_launches(
    product: Product,
) -> AsyncGenerator[None, None]:
    async with product.scene("deleted") as deleted, product.scene("made") as made:
        (claim,) = await deleted.run(1)
        yield
        await product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        name = await made.claim_by_hand()
        yield
        await eventually(lambda: deleted.claims_are_gone(names([claim])))
        await eventually(lambda: deleted.pods_run(1))
        await eventually(lambda: made.nodes_are_initialized(1))
        assert names(await made.claims()) == [name] and len(made.launched()) == 1


@AWAY.scenario
async def test_a_pool_that_changed_meanwhile_is_heeded(product: Product) -> AsyncGenerator[None, None]:
    async with product.scene("patient", after="Never") as scene:
        claims = await scene.run(1)
        await scene.scale(0)
        yield
        await scene.make(node_pool(scene.name, after="1s"))
        yield
        await eventually(lambda: scene.claims_are_gone(names(claims)))


@AWAY.scenario
async def test_a_pool_that_was_deleted_meanwhile_takes_all_of_its_own_along(
    product: Product,
) -> AsyncGenerator[None, None]:
    async with product.scene("dropped") as scene:
        claims = await scene.run(1)
        yield
        await product.delete(scene.pool_path)
        yield
        await eventually(lambda: scene.claims_are_gone(names(claims)))
        await eventually(scene.nothing_is_left)
