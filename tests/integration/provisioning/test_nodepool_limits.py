"""A NodePool's limits hold under concurrent launches, and pending pods get an event that names the limit."""

from functools import partial

from tenure.apis.labels import NODEPOOL
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct


async def test_concurrent_launches_stay_within_nodepool_limits(product: InstalledProduct) -> None:
    """Each planning pass sees NodeClaims of the previous one that have no node and no capacity yet."""
    async with product.scope("limits", limits={"cpu": "5"}) as scope:
        await scope.create_deployment(0)
        created = 0
        for pods in (2, 4, 6):
            await wait_until(partial(_assert_pods_exist, scope, created))
            await scope.scale_deployment(pods)
            created = pods
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
    """Returns the names of the pending pods."""
    pods = await scope.pods()
    running_pods = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    pending_pods = [pod for pod in pods if pod["status"].get("phase") == "Pending"]
    assert (len(running_pods), len(pending_pods)) == (running, waiting), (
        f"{len(running_pods)} run, {len(pending_pods)} wait"
    )
    return object_names(pending_pods)


async def test_pod_without_a_possible_node_has_one_verdict_everywhere(product: InstalledProduct) -> None:
    async with product.scope("verdict") as scope:
        await scope.create_deployment(1, nodeSelector={NODEPOOL: scope.name, "kubernetes.io/arch": "mips"})
        await wait_until(partial(_assert_pods_exist, scope, 1))
        (pod,) = object_names(await scope.pods())
        event = await wait_until(lambda: scope.assert_event(pod, "FailedScheduling", "NoNodePoolFits: ", "mips"))
        _, (why,) = await product.run_cli("why", f"default/{pod}")
        code, stuck = await product.run_cli("stuck")
        (item,) = [one for one in stuck["late"] if one["what"] == f"pod default/{pod}"]
        verdict = why["verdict"]
        message = f"{verdict['code']}: {verdict['sentence']}"
        assert (
            event["message"] == f"Failed to schedule pod, {message}" and item["code"] == verdict["code"] and code == 1
        )
        assert item["blockedBy"] == f"needs attention: {verdict['remedy']}; {message}"
        await wait_until(
            lambda: product.metric_value("tenure_pending_pods", code=verdict["code"], clears_by_itself="false")
        )
