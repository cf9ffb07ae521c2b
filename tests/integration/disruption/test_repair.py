"""Node repair on the real parts: a reboot that helps, one that does not, flaps that add up, and the breaker."""

from functools import partial
from typing import Any

from tenure.kube.client.resources import LIFECYCLE_POLICIES, NODES
from tenure.sandbox.nodes.fault_rules import NotReady, SetCondition
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import Object, lifecycle_policy
from tests.support.product.product import DedicatedProduct
from tests.support.product.scene import ClusterScope, condition_status


def sick(type_: str = "KernelReady", toleration: str = "3s") -> dict[str, Any]:
    return {"type": type_, "status": "False", "toleration": toleration}


async def test_a_broken_node_is_rebooted_once_and_replaced_when_that_helped_for_a_moment_only(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker(FEATURE_GATES="NodeRepair=true")
    async with own_product.scope("ladder") as scope:
        await _rules(scope, conditions=[sick()], steps=["reboot", "replace"], rebootFor="2m")
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        boot = await _boot_id(scope, node)
        await scope.inject_node_fault(SetCondition(type="KernelReady", status="False"), node=node)
        await wait_until(partial(scope.assert_event, name, "Rebooting", "KernelReady=False"))
        await wait_until(partial(scope.assert_event, name, "Repaired"))
        assert await _boot_id(scope, node) != boot
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()
        await scope.inject_node_fault(SetCondition(type="KernelReady", status="False"), node=node)
        await wait_until(partial(scope.assert_event, name, "Unhealthy", "KernelReady=False"))
        await wait_until(partial(scope.assert_nodeclaims_deleted, [name]))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)
        launched = [
            one for one in own_product.aws.list_instances()["instances"] if one["id"] in scope.launched_instances()
        ]
        assert sorted(one["reboots"] for one in launched) == [0, 1]


async def test_a_node_that_flaps_is_replaced_when_its_bad_times_add_up(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(FEATURE_GATES="NodeRepair=true")
    async with own_product.scope("flaps") as scope:
        await _rules(scope, conditions=[sick("Ready", "45s")], within="5m")
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        for _ in range(2):
            await scope.inject_node_fault(NotReady(for_seconds=10), node=node)
            await wait_until(partial(scope.assert_node_ready_status, node, ready="False"))
            await wait_until(partial(scope.assert_node_ready_status, node, ready="True"))
            await scope.assert_nodeclaims_exist([name])
        await scope.inject_node_fault(NotReady(for_seconds=43), node=node)
        await wait_until(partial(scope.assert_event, name, "Unhealthy", "Ready=False"))
        await wait_until(partial(scope.assert_nodeclaims_deleted, [name]))


async def test_while_too_many_are_unhealthy_nothing_is_replaced_and_the_node_says_so(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker(FEATURE_GATES="NodeRepair=true")
    async with own_product.scope("breaker") as scope:
        await _rules(scope, conditions=[sick(toleration="10s")], maxUnhealthy="1")
        claims = await scope.run_pods(2)
        await scope.inject_node_fault(SetCondition(type="KernelReady", status="False"))
        node = claims[0]["status"]["nodeName"]
        await wait_until(
            partial(scope.assert_event, node, "NodeRepairBlocked", f"2 of 2 nodes of NodePool {scope.name}")
        )
        await assert_throughout(
            partial(scope.assert_nodeclaims_exist, [one["metadata"]["name"] for one in claims]), seconds=10
        )


async def _rules(scope: ClusterScope, **repair: Any) -> None:
    """In force, before anything is launched under them."""
    await scope.apply_manifest(lifecycle_policy(f"repair-{scope.name}", scope.name, repair=repair))
    await wait_until(partial(_assert_rules_active, scope))


async def _assert_rules_active(scope: ClusterScope) -> None:
    policy: Object = await scope.product.kube.request("GET", LIFECYCLE_POLICIES.path(f"repair-{scope.name}"))
    assert condition_status(policy, "Ready") == "True", policy.get("status")


async def _boot_id(scope: ClusterScope, node: str) -> str:
    found = await scope.product.kube.request("GET", NODES.path(node))
    return str(found["status"]["nodeInfo"]["bootID"])
