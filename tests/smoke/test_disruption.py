"""Voluntary and involuntary disruption."""

from datetime import UTC, datetime

from tenure.apis import labels
from tenure.cli.disruption.pause import Target, tell, wanted_pause
from tenure.model.signals import Resume
from tests.support.product.drains import put_under, terminating_pod
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import Product
from tests.support.product.scene import Scene, names

BOTH_REPLACED_SECONDS = 240.0


async def test_drifted_nodes_are_replaced_within_budget(product: Product) -> None:
    async with product.scene("drift", budget="1") as scene:
        old = names(await scene.run(2))
        await product.patch(scene.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
        await eventually(lambda: are_replaced_one_by_one(scene, old), seconds=BOTH_REPLACED_SECONDS)
        await eventually(lambda: scene.pods_run(2))
        await scene.nodes_were_bought(4)
        assert {claim["metadata"]["labels"]["team"] for claim in await scene.claims()} == {"web"}


async def are_replaced_one_by_one(scene: Scene, old: list[str]) -> None:
    claims = await scene.claims()
    deleting = [name for claim in claims if "deletionTimestamp" in claim["metadata"] for name in names([claim])]
    if len(deleting) > 1:
        raise RuntimeError(f"the budget allows 1 node, and {deleting} are being deleted")
    left = [name for name in names(claims) if name in old]
    assert not left, f"{scene.name}: {left} are not replaced"


async def test_spot_interruption_replaces_node_before_it_is_reclaimed(product: Product) -> None:
    async with product.scene("spot", capacity_type=labels.SPOT) as scene:
        (claim,) = await scene.run(1)
        (instance,) = scene.launched()
        product.aws.interrupt_spot(instance, notice_seconds=120)
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)


async def test_paused_pool_keeps_empty_node_until_resumed(product: Product) -> None:
    async with product.scene("pause") as scene:
        (claim,) = await scene.run(1)
        (name,) = names([claim])
        await pause(product, scene)
        await scene.scale(0)
        await eventually(lambda: scene.is_blocked_by(name, "is paused by ann@example.com"))
        await throughout(lambda: scene.claims_stand([name]), seconds=3)
        await resume(product, scene)
        await eventually(lambda: scene.claims_are_gone([name]))


async def test_cancelled_disruption_returns_node_to_service(product: Product) -> None:
    async with product.scene("cancel") as scene:
        (claim,) = await scene.run(1)
        (name,), node = names([claim]), claim["status"]["nodeName"]
        await put_under(scene, name, whenBlocked="giveUp", blockedFor="1h")
        async with terminating_pod(scene):
            await scene.scale(0)
            await eventually(lambda: scene.node_is_marked(node))
            await pause(product, scene)
            await eventually(lambda: scene.node_is_in_service(node))
        await scene.claims_stand([name])
        await resume(product, scene)
        await eventually(lambda: scene.claims_are_gone([name]))


async def pause(product: Product, scene: Scene) -> None:
    wanted = wanted_pause("1h", "", "smoke test", "ann@example.com", datetime.now(UTC))
    await tell(product.connection, Target(pool=scene.name), "pause", wanted)


async def resume(product: Product, scene: Scene) -> None:
    await tell(product.connection, Target(pool=scene.name), "resume", Resume(by="ann@example.com"))
