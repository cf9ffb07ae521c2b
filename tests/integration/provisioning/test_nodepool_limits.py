"""A NodePool's limits hold while pods come faster than nodes, and say so to the pods that wait."""

from functools import partial

from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct
from tests.support.product.scene import ClusterScope, object_names


async def test_launches_at_the_same_time_stay_within_the_limits(product: InstalledProduct) -> None:
    """Each pass of planning sees claims of the last one that have neither node nor capacity yet."""
    async with product.scope("limits", limits={"cpu": "5"}) as scope:
        await scope.create_deployment(0)
        there = 0
        for pods in (2, 4, 6):
            await wait_until(partial(_assert_pods_exist, scope, there))
            await scope.scale_deployment(pods)
            there = pods
        pending = await wait_until(lambda: _assert_running_and_pending(scope, running=2, waiting=4))
        for pod in pending:
            await wait_until(partial(scope.assert_event, pod, "FailedScheduling", f"pool {scope.name}: limit cpu 5"))
        await scope.wait_until_nodes_launched(2)
        await product.patch(scope.pool_path, {"spec": {"limits": {"cpu": "100"}}})
        await wait_until(lambda: scope.assert_pods_running(6))
        await scope.wait_until_nodes_launched(6)


async def _assert_pods_exist(scope: ClusterScope, pods: int) -> None:
    found = await scope.pods()
    assert len(found) >= pods, f"{len(found)} pods"


async def _assert_running_and_pending(scope: ClusterScope, *, running: int, waiting: int) -> list[str]:
    """The names of those that wait."""
    pods = await scope.pods()
    run = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    wait = [pod for pod in pods if pod["status"].get("phase") == "Pending"]
    assert (len(run), len(wait)) == (running, waiting), f"{len(run)} run, {len(wait)} wait"
    return object_names(wait)
