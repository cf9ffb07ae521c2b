"""Promise 2: one need, one node."""

from datetime import datetime, timedelta

import pytest

from tenure.apis import labels
from tenure.cli.nodes.workflows import NodeLife
from tenure.kube.client.resources import PODS
from tenure.sandbox.nodes.fault_rules import AddTaint, LateDevices, NeverRegister, NotReady, SlowReady
from tenure.sandbox.nodes.userdata.kubelet_join import Taint
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import Object, pod_spec
from tests.support.product.product import Product
from tests.support.product.scene import Scene, ready, reason
from tests.support.product.settings import GRACE

CILIUM = "node.cilium.io/agent-not-ready"
TAINTS = tuple(Taint(key=CILIUM, value="true", effect=effect) for effect in ("NoExecute", "NoSchedule"))
DECLARED = [taint.to_object() for taint in TAINTS]
FOREVER = 3600.0
"""Seconds: the drivers are there when the test says so."""
GPU = {"types": ["g4dn.xlarge"]}


def needs_gpu(scene: Scene) -> Object:
    return {"containers": pod_spec(scene.name, **{"nvidia.com/gpu": "1"})["containers"]}


@pytest.mark.row("001-a")
async def test_a_startup_taint_that_lasts_buys_no_second_node(product: Product) -> None:
    async with product.scene("001-a", startup_taints=DECLARED) as scene:
        await scene.trouble(AddTaint(taints=TAINTS))
        await scene.deploy(1)
        (claim,) = await eventually(lambda: scene.initialization_waits(labels.STARTUP_TAINTS_EXIST))
        assert CILIUM in reason(claim, labels.INITIALIZED_CONDITION)
        await scene.one_node_was_bought()
        await _remove_taints(scene, claim["status"]["nodeName"])
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()


@pytest.mark.row("001-b")
async def test_a_node_that_is_not_ready_for_a_while_keeps_its_pending_pod(product: Product) -> None:
    async with product.scene("001-b", after="60s") as scene:
        (claim,) = await scene.run(1)
        node = claim["status"]["nodeName"]
        await scene.trouble(NotReady(for_seconds=15), node=node)
        await eventually(lambda: scene.node_is_cordoned_off(node))
        await _replace_the_pod(scene)
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: scene.node_is(node, ready="True"))
        assert [pod["spec"]["nodeName"] for pod in await scene.pods()] == [node]
        await scene.one_node_was_bought()


@pytest.mark.row("001-c")
async def test_a_node_that_does_not_come_back_is_replaced_after_the_grace_and_not_before(product: Product) -> None:
    async with product.scene("001-c", after="120s") as scene:
        (claim,) = await scene.run(1)
        node = claim["status"]["nodeName"]
        await scene.trouble(NotReady(), node=node)
        lost = ready(await eventually(lambda: scene.node_is_cordoned_off(node)))
        await _replace_the_pod(scene)
        second = await eventually(lambda: scene.newest_claim(2))
        (born,) = [one for one in await scene.claims() if one["metadata"]["name"] == second]
        assert _moment(born["metadata"]["creationTimestamp"]) - lost >= timedelta(seconds=GRACE)
        await eventually(lambda: scene.event(claim["metadata"]["name"], "NotReadyGraceOver", node))
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)


@pytest.mark.row("001-d")
async def test_a_taint_that_nobody_declared_is_a_real_one_and_is_explained(product: Product) -> None:
    stranger = Taint(key="stranger.example.com/keep-out", effect="NoSchedule")
    async with product.scene("001-d", after="3s") as scene:
        await scene.trouble(AddTaint(taints=(stranger,)), count=1)
        await scene.deploy(1)
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)
        first = (await scene.lives())[0].name
        await eventually(lambda: scene.event(first, "UndeclaredTaint", stranger.key, "startupTaints"))
        await eventually(lambda: scene.claims_are_gone([first]))


@pytest.mark.row("001-e")
async def test_an_instance_that_never_registers_is_replaced_at_the_deadline(product: Product) -> None:
    async with product.scene("001-e") as scene:
        await scene.trouble(NeverRegister(), count=1)
        await scene.deploy(1)
        first = await eventually(lambda: scene.newest_claim(1))
        await eventually(lambda: scene.event(first, "RegistrationTimeout"))
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: scene.claims_are_gone([first]))
        await eventually(lambda: scene.instances_alive(1))
        await scene.nodes_were_bought(2)


@pytest.mark.row("001-e")
async def test_a_launch_that_hangs_is_given_up_at_its_deadline_and_another_follows(product: Product) -> None:
    async with product.scene("001-e") as scene:
        fault = scene.aws_fault("5xx", "CreateFleet")
        await scene.deploy(1)
        first = await eventually(lambda: scene.newest_claim(1))
        await eventually(lambda: scene.event(first, "LaunchTimeout"))
        scene.forgive(fault)
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: scene.claims_are_gone([first]))
        await eventually(lambda: scene.instances_alive(1))


@pytest.mark.row("001-f")
async def test_a_pod_waits_for_the_device_plugin_on_the_node_it_has(product: Product) -> None:
    async with product.scene("001-f", **GPU) as scene:
        await scene.trouble(LateDevices(seconds=None))
        await scene.deploy(1, **needs_gpu(scene))
        (claim,) = await eventually(lambda: scene.initialization_waits(labels.RESOURCE_NOT_REGISTERED))
        assert "nvidia.com/gpu" in reason(claim, labels.INITIALIZED_CONDITION)
        await scene.one_node_was_bought()
        await _device_plugin_runs(scene, claim["status"]["nodeName"])
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()


@pytest.mark.row("001-h")
async def test_a_gpu_node_that_installs_drivers_is_slow_and_not_stuck(product: Product) -> None:
    async with product.scene("001-h", **GPU) as scene:
        await scene.trouble(SlowReady(seconds=FOREVER))
        await scene.deploy(1, **needs_gpu(scene))
        (claim,) = await eventually(lambda: scene.initialization_waits(labels.NODE_NOT_READY))
        name = claim["metadata"]["name"]
        await eventually(lambda: scene.is_blocked_by(name, labels.NODE_NOT_READY))
        life = await scene.life(name)
        assert life.deadline and life.node_name and not life.overdue
        await scene.one_node_was_bought()
        await scene.kubelet_is_ready(life.node_name)
        await _device_plugin_runs(scene, life.node_name)
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()


@pytest.mark.row("001-i")
async def test_a_startup_taint_that_stays_makes_the_node_overdue_everywhere(product: Product) -> None:
    async with product.scene("001-i", startup_taints=DECLARED) as scene:
        await scene.deploy(1)
        name = await eventually(lambda: scene.newest_claim(1))
        await eventually(lambda: scene.event(name, "InitializationOverdue", CILIUM))
        life = await eventually(lambda: _is_overdue(scene, name))
        await eventually(lambda: product.metric("tenure_overdue_total", nodepool=scene.name, phase="Initialization"))
        await throughout(scene.one_node_was_bought, seconds=5)
        await _remove_taints(scene, life.node_name)
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: _is_in_time(scene, name))
        await scene.one_node_was_bought()


async def _replace_the_pod(scene: Scene) -> None:
    """Its successor has to wait, since the node is NotReady."""
    (pod,) = await scene.pods()
    await scene.product.delete(PODS.path(pod["metadata"]["name"], namespace="default"))


async def _remove_taints(scene: Scene, node: str) -> None:
    found = await scene.product.kube.request("GET", f"/api/v1/nodes/{node}")
    kept = [taint for taint in found["spec"].get("taints") or () if taint["key"] != CILIUM]
    await scene.product.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": kept}})


async def _is_overdue(scene: Scene, claim: str) -> NodeLife:
    life = await scene.life(claim)
    assert life.overdue and labels.STARTUP_TAINTS_EXIST in life.blocked_by, life
    return life


async def _is_in_time(scene: Scene, claim: str) -> None:
    assert not (await scene.life(claim)).overdue, f"{claim} is still overdue"


async def _device_plugin_runs(scene: Scene, node: str) -> None:
    devices = {"nvidia.com/gpu": "1"}
    await scene.product.patch_status(f"/api/v1/nodes/{node}", {"capacity": devices, "allocatable": devices})


def _moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)
