"""The worker is killed in the middle of a drain that is held: nothing is forced, nothing is done twice."""

from tenure.kube.client.resources import NODE_CLAIMS, WORKLOADS
from tests.support.product.drains import budget, budget_counts, budget_path, delete_under, protect
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names


async def test_a_drain_held_by_a_budget_goes_on_after_the_worker_was_killed(
    product: OwnProduct,
) -> None:
    await product.work()
    async with product.scene("held-on", after="Never") as scene:
        (claim,) = await scene.run(1)
        await scene.make(budget(scene.name, maxUnavailable=0))
        await eventually(lambda: budget_counts(scene, 1))
        name = claim["metadata"]["name"]
        await product.delete(NODE_CLAIMS.path(name))
        await eventually(lambda: scene.says(name, "maxUnavailable 0"))
        await product.kill()
        await throughout(lambda: scene.pods_run(1), seconds=2)
        await product.go_on()
        await product.patch(budget_path(scene.name), {"spec": {"maxUnavailable": 1}})
        await _is_over(scene, name)


async def test_time_held_runs_on_while_no_worker_is_there(product: OwnProduct) -> None:
    await product.work()
    async with product.scene("held-for", after="Never") as scene:
        (claim,) = await scene.run(1)
        await protect(scene, "true")
        await delete_under(scene, claim, whenBlocked="escalate", blockedFor="45s")
        await eventually(lambda: scene.says(claim["metadata"]["name"], "escalates at"))
        await product.kill()
        await product.go_on()
        await _is_over(scene, claim["metadata"]["name"])


async def test_a_rollout_is_restarted_once_though_the_worker_was_killed(product: OwnProduct) -> None:
    await product.work()
    async with product.scene("surged-on", after="Never") as scene:
        (claim,) = await scene.run(1)
        await delete_under(scene, claim, surgeSingleReplicas=True)
        await eventually(lambda: _restarted(scene))
        await product.kill()
        await product.go_on()
        await _is_over(scene, claim["metadata"]["name"])
        await _restarted(scene)


async def _restarted(scene: Scene) -> None:
    path = WORKLOADS["Deployment"].path(scene.name, namespace="default")
    deployment = await scene.product.kube.request("GET", path)
    assert deployment["metadata"]["generation"] == 2, deployment["metadata"]


async def _is_over(scene: Scene, name: str) -> None:
    await eventually(lambda: scene.claims_are_gone([name]))
    assert name not in names(await scene.claims())
