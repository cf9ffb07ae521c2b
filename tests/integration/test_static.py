"""Static pools on the real parts: scaled as with kubectl, kept whatever becomes of nodes and workers."""

from functools import partial

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS, NODE_POOLS
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import Object
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, condition, names, reason


async def test_a_static_pool_has_as_many_nodes_as_it_is_scaled_to(own_product: OwnProduct) -> None:
    """The worker is killed while it makes NodeClaims: none is made twice."""
    await own_product.work(FEATURE_GATES="StaticCapacity=true", BATCH_IDLE_DURATION="5s")
    async with own_product.scene("static", replicas=0, limits={"nodes": "7"}) as scene:
        await _scale(scene, 3)
        first = names(await eventually(lambda: scene.nodes_are_initialized(3)))
        assert len(scene.tokens()) == 1, "those that are alike launch together"
        await scene.deploy(1)
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(3)
        await own_product.delete(NODE_CLAIMS.path(first[0]))
        await eventually(partial(scene.claims_are_gone, first[:1]))
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: scene.nodes_are_initialized(3))
        await scene.nodes_were_bought(4)
        busy = await _node_of_the_pod(scene)
        await _scale(scene, 1)
        left = await eventually(lambda: scene.nodes_are_initialized(1))
        assert left[0]["status"]["nodeName"] == busy, "empty ones go first"
        await eventually(lambda: scene.instances_alive(1))
        await _scale(scene, 9)
        await eventually(partial(_some_were_made, scene, 2))
        await own_product.kill()
        await own_product.go_on()
        await eventually(lambda: scene.nodes_are_initialized(7))
        await eventually(partial(scene.event, scene.name, labels.REPLICAS_WAIT, "7 of 9 nodes", "limits.nodes=7"))
        await throughout(partial(_at_most, scene, 7), seconds=5)
        await scene.nodes_were_bought(10)
        await eventually(partial(_tells_of, scene, 7))


async def test_a_static_pool_without_its_gate_makes_nothing_and_says_what_to_write(own_product: OwnProduct) -> None:
    await own_product.work()
    async with own_product.scene("nogate", replicas=2) as scene:
        await eventually(partial(_is_refused, scene))
        await throughout(partial(_at_most, scene, 0), seconds=5)


async def _scale(scene: Scene, replicas: int) -> None:
    """As `kubectl scale nodepool` does it."""
    path = NODE_POOLS.path(scene.name, sub="scale")
    await scene.product.patch(path, {"spec": {"replicas": replicas}})


async def _node_of_the_pod(scene: Scene) -> str:
    (pod,) = [one for one in await scene.pods() if "deletionTimestamp" not in one["metadata"]]
    return str(pod["spec"]["nodeName"])


async def _some_were_made(scene: Scene, at_least: int) -> list[Object]:
    claims = await scene.claims()
    assert len(claims) >= at_least, f"{scene.name}: {names(claims)}"
    return claims


async def _at_most(scene: Scene, count: int) -> None:
    claims = names(await scene.claims())
    assert len(claims) <= count, f"{scene.name}: NodeClaims {claims}"


async def _tells_of(scene: Scene, nodes: int) -> None:
    """The NodePool's status follows its nodes within seconds."""
    pool = await scene.product.kube.request("GET", scene.pool_path)
    assert pool["status"].get("nodes") == nodes, pool["status"]


async def _is_refused(scene: Scene) -> None:
    pool = await scene.product.kube.request("GET", scene.pool_path)
    assert condition(pool, labels.READY) == "False", pool.get("status")
    assert "FEATURE_GATES=StaticCapacity=true" in reason(pool, labels.VALIDATION_SUCCEEDED), pool["status"]
