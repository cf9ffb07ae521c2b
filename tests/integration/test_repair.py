"""Node repair on the real parts: a reboot that helps, one that does not, flaps that add up, and the breaker."""

from functools import partial
from typing import Any

from tenure.kube.client.resources import LIFECYCLE_POLICIES, NODES
from tenure.sandbox.nodes.fault_rules import NotReady, SetCondition
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import Object, lifecycle_policy
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, condition


def sick(type_: str = "KernelReady", toleration: str = "3s") -> dict[str, Any]:
    return {"type": type_, "status": "False", "toleration": toleration}


async def test_a_broken_node_is_rebooted_once_and_replaced_when_that_helped_for_a_moment_only(
    own_product: OwnProduct,
) -> None:
    await own_product.work(FEATURE_GATES="NodeRepair=true")
    async with own_product.scene("ladder") as scene:
        await _rules(scene, conditions=[sick()], steps=["reboot", "replace"], rebootFor="2m")
        (claim,) = await scene.run(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        boot = await _boot_id(scene, node)
        await scene.trouble(SetCondition(type="KernelReady", status="False"), node=node)
        await eventually(partial(scene.event, name, "Rebooting", "KernelReady=False"))
        await eventually(partial(scene.event, name, "Repaired"))
        assert await _boot_id(scene, node) != boot
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()
        await scene.trouble(SetCondition(type="KernelReady", status="False"), node=node)
        await eventually(partial(scene.event, name, "Unhealthy", "KernelReady=False"))
        await eventually(partial(scene.claims_are_gone, [name]))
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)
        launched = [one for one in own_product.aws.instances()["instances"] if one["id"] in scene.launched()]
        assert sorted(one["reboots"] for one in launched) == [0, 1]


async def test_a_node_that_flaps_is_replaced_when_its_bad_times_add_up(own_product: OwnProduct) -> None:
    await own_product.work(FEATURE_GATES="NodeRepair=true")
    async with own_product.scene("flaps") as scene:
        await _rules(scene, conditions=[sick("Ready", "45s")], within="5m")
        (claim,) = await scene.run(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        for _ in range(2):
            await scene.trouble(NotReady(for_seconds=10), node=node)
            await eventually(partial(scene.node_is, node, ready="False"))
            await eventually(partial(scene.node_is, node, ready="True"))
            await scene.claims_stand([name])
        await scene.trouble(NotReady(for_seconds=43), node=node)
        await eventually(partial(scene.event, name, "Unhealthy", "Ready=False"))
        await eventually(partial(scene.claims_are_gone, [name]))


async def test_while_too_many_are_unhealthy_nothing_is_replaced_and_the_node_says_so(own_product: OwnProduct) -> None:
    await own_product.work(FEATURE_GATES="NodeRepair=true")
    async with own_product.scene("breaker") as scene:
        await _rules(scene, conditions=[sick(toleration="10s")], maxUnhealthy="1")
        claims = await scene.run(2)
        await scene.trouble(SetCondition(type="KernelReady", status="False"))
        node = claims[0]["status"]["nodeName"]
        await eventually(partial(scene.event, node, "NodeRepairBlocked", f"2 of 2 nodes of NodePool {scene.name}"))
        await throughout(partial(scene.claims_stand, [one["metadata"]["name"] for one in claims]), seconds=10)


async def _rules(scene: Scene, **repair: Any) -> None:
    """In force, before anything is launched under them."""
    await scene.make(lifecycle_policy(f"repair-{scene.name}", scene.name, repair=repair))
    await eventually(partial(_in_force, scene))


async def _in_force(scene: Scene) -> None:
    policy: Object = await scene.product.kube.request("GET", LIFECYCLE_POLICIES.path(f"repair-{scene.name}"))
    assert condition(policy, "Ready") == "True", policy.get("status")


async def _boot_id(scene: Scene, node: str) -> str:
    found = await scene.product.kube.request("GET", NODES.path(node))
    return str(found["status"]["nodeInfo"]["bootID"])
