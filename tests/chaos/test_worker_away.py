"""The world changes while no worker is there: when one is back, it catches up with all of it."""

import asyncio
import re
from functools import partial

from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tests.support.paths import ROOT
from tests.support.product.eventually import eventually
from tests.support.product.objects import node_pool
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names


async def test_pods_that_came_meanwhile_get_nodes_and_pods_that_went_leave_none(
    product: OwnProduct,
) -> None:
    await product.work()
    async with product.scene("grows") as grows, product.scene("shrinks") as shrinks:
        await grows.run(1)
        left = await shrinks.run(1)
        await product.rest()
        await grows.scale(2)
        await shrinks.scale(0)
        await product.go_on()
        await eventually(lambda: grows.pods_run(2))
        await grows.nodes_were_bought(2)
        await eventually(lambda: shrinks.claims_are_gone(names(left)))


async def test_a_claim_that_was_deleted_meanwhile_goes_and_one_that_was_made_launches(
    product: OwnProduct,
) -> None:
    await product.work()
    async with product.scene("deleted") as deleted, product.scene("made") as made:
        (claim,) = await deleted.run(1)
        await product.rest()
        await product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        name = await made.claim_by_hand()
        await product.go_on()
        await eventually(lambda: deleted.claims_are_gone(names([claim])))
        await eventually(lambda: deleted.pods_run(1))
        await eventually(lambda: made.nodes_are_initialized(1))
        assert names(await made.claims()) == [name] and len(made.launched()) == 1


async def test_a_pool_that_changed_meanwhile_is_heeded(product: OwnProduct) -> None:
    await product.work()
    async with product.scene("patient", after="Never") as scene:
        claims = await scene.run(1)
        await scene.scale(0)
        await product.rest()
        await scene.make(node_pool(scene.name, after="1s"))
        await product.go_on()
        await eventually(lambda: scene.claims_are_gone(names(claims)))


async def test_a_pool_that_was_deleted_meanwhile_takes_all_of_its_own_along(
    product: OwnProduct,
) -> None:
    await product.work()
    async with product.scene("dropped") as scene:
        claims = await scene.run(1)
        await product.rest()
        await product.delete(scene.pool_path)
        await product.go_on()
        await eventually(lambda: scene.claims_are_gone(names(claims)))
        await eventually(scene.nothing_is_left)


async def test_a_node_that_was_removed_by_hand_meanwhile_as_the_documents_say_is_let_go(
    product: OwnProduct,
) -> None:
    await product.work()
    async with product.scene("hand", after="Never") as scene:
        claims, nodes = await scene.run(1), await scene.nodes()
        (instance,) = scene.alive()
        await product.rest()
        found = await _instances_that_the_documents_find(product)
        assert instance in found
        ec2 = product.admin("ec2")
        await asyncio.to_thread(ec2.terminate_instances, InstanceIds=[instance])
        for path in (*map(NODE_CLAIMS.path, names(claims)), *map(NODES.path, names(nodes))):
            await product.patch(path, {"metadata": {"finalizers": None}})
            await product.delete(path)
            await eventually(partial(product.is_gone, path))
        await product.go_on()
        await eventually(lambda: _is_over(scene, *names(claims)))
        await eventually(lambda: scene.nodes_were_bought(2))
        await eventually(lambda: scene.pods_run(1))
        await scene.instances_alive(1)
        assert await product.failed_workflows() == []


async def _instances_that_the_documents_find(product: OwnProduct) -> list[str]:
    """By the filters of the command in docs/install.md, for whoever has no worker any more."""
    page = (ROOT / "docs" / "install.md").read_text()
    written = re.findall(r"Name=([^,\s]+),Values=(\S+)", page.replace("CLUSTER", product.own_sandbox.plan.cluster_name))
    filters = [{"Name": name, "Values": values.split(",")} for name, values in written]
    assert len(filters) == 3
    answer = await asyncio.to_thread(product.admin("ec2").describe_instances, Filters=filters)
    return [one["InstanceId"] for group in answer["Reservations"] for one in group["Instances"]]


async def _is_over(scene: Scene, name: str) -> None:
    assert not (await scene.life(name)).open
