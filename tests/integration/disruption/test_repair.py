"""Node repair on real components: accumulated flaps, and maxUnhealthy."""

from functools import partial
from typing import Any

from tenure.kube.client.resources import LIFECYCLE_POLICIES
from tenure.sandbox.nodes.fault_rules import NotReady, SetCondition
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import lifecycle_policy
from tests.support.product.product import DedicatedProduct


def unhealthy_condition(type_: str = "KernelReady", toleration: str = "3s") -> dict[str, Any]:
    return {"type": type_, "status": "False", "toleration": toleration}


async def test_flapping_node_is_replaced_by_accumulated_unhealthy_time(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(FEATURE_GATES="NodeRepair=true")
    async with own_product.scope("flaps") as scope:
        await _apply_repair_rules(scope, conditions=[unhealthy_condition("Ready", "45s")], within="5m")
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        for _ in range(2):
            await scope.inject_node_fault(NotReady(for_seconds=10), node=node)
            await wait_until(partial(scope.assert_node_ready_status, node, ready="False"))
            await wait_until(partial(scope.assert_node_ready_status, node, ready="True"))
            await scope.assert_nodeclaims_exist([name])
        await scope.inject_node_fault(NotReady(for_seconds=180), node=node)
        await wait_until(partial(scope.assert_event, name, "Unhealthy", "Ready=False"))
        await wait_until(partial(scope.assert_nodeclaims_deleted, [name]))


async def test_max_unhealthy_blocks_node_repair(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(FEATURE_GATES="NodeRepair=true")
    async with own_product.scope("breaker") as scope:
        await _apply_repair_rules(scope, conditions=[unhealthy_condition(toleration="10s")], maxUnhealthy="1")
        claims = await scope.run_pods(2)
        await scope.inject_node_fault(SetCondition(type="KernelReady", status="False"))
        node = claims[0]["status"]["nodeName"]
        await wait_until(
            partial(scope.assert_event, node, "NodeRepairBlocked", f"2 of 2 nodes of NodePool {scope.name}")
        )
        await assert_throughout(
            partial(scope.assert_nodeclaims_exist, [one["metadata"]["name"] for one in claims]), seconds=10
        )


async def _apply_repair_rules(scope: ClusterScope, **repair: Any) -> None:
    """The policy is Ready before any node is launched."""
    await scope.apply_manifest(lifecycle_policy(f"repair-{scope.name}", scope.name, repair=repair))
    path = LIFECYCLE_POLICIES.path(f"repair-{scope.name}")
    await wait_until(partial(scope.product.assert_condition, path, "Ready", "True"))
