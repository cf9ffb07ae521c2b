"""A NodePool's limits hold while pods come faster than nodes, and say so to the pods that wait."""

from functools import partial

from tests.support.product.eventually import eventually
from tests.support.product.product import Product
from tests.support.product.scene import Scene, names


async def test_launches_at_the_same_time_stay_within_the_limits(product: Product) -> None:
    """Each pass of planning sees claims of the last one that have neither node nor capacity yet."""
    async with product.scene("limits", limits={"cpu": "5"}) as scene:
        await scene.deploy(0)
        there = 0
        for pods in (2, 4, 6):
            await eventually(partial(_pods_are_there, scene, there))
            await scene.scale(pods)
            there = pods
        pending = await eventually(lambda: _runs_and_waits(scene, running=2, waiting=4))
        for pod in pending:
            await eventually(partial(scene.event, pod, "FailedScheduling", f"pool {scene.name}: limit cpu 5"))
        await scene.nodes_were_bought(2)
        await product.patch(scene.pool_path, {"spec": {"limits": {"cpu": "100"}}})
        await eventually(lambda: scene.pods_run(6))
        await scene.nodes_were_bought(6)


async def _pods_are_there(scene: Scene, pods: int) -> None:
    found = await scene.pods()
    assert len(found) >= pods, f"{len(found)} pods"


async def _runs_and_waits(scene: Scene, *, running: int, waiting: int) -> list[str]:
    """The names of those that wait."""
    pods = await scene.pods()
    run = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    wait = [pod for pod in pods if pod["status"].get("phase") == "Pending"]
    assert (len(run), len(wait)) == (running, waiting), f"{len(run)} run, {len(wait)} wait"
    return names(wait)
