"""Promise 2: each pending pod triggers at most one node."""

from datetime import datetime, timedelta

import pytest

from tenure.apis import labels
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.sandbox.nodes.fault_rules import AddTaint, LateDevices, NeverRegister, NotReady, SlowReady
from tenure.sandbox.nodes.userdata.kubelet_join import Taint
from tests.support.product.cluster_scope import ClusterScope, condition_reason, ready_changed_at
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import Object, pod_spec
from tests.support.product.product import InstalledProduct
from tests.support.product.settings import GRACE

CILIUM = "node.cilium.io/agent-not-ready"
TAINTS = tuple(Taint(key=CILIUM, value="true", effect=effect) for effect in ("NoExecute", "NoSchedule"))
DECLARED = [taint.to_object() for taint in TAINTS]
FOREVER = 3600.0
"""Seconds, longer than the test: it reports the drivers itself."""
GPU = {"types": ["g4dn.xlarge"]}


def gpu_pod(scope: ClusterScope) -> Object:
    return {"containers": pod_spec(scope.name, **{"nvidia.com/gpu": "1"})["containers"]}


@pytest.mark.row("001-a")
async def test_startup_taint_does_not_trigger_a_second_node(product: InstalledProduct) -> None:
    async with product.scope("001-a", startup_taints=DECLARED) as scope:
        await scope.inject_node_fault(AddTaint(taints=TAINTS))
        await scope.create_deployment(1)
        (claim,) = await wait_until(lambda: scope.assert_initialization_waits(labels.STARTUP_TAINTS_EXIST))
        assert CILIUM in condition_reason(claim, labels.INITIALIZED_CONDITION)
        await scope.assert_one_node_launched()
        await scope.remove_taints(claim["status"]["nodeName"], CILIUM)
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()


@pytest.mark.row("001-b")
async def test_node_that_is_notready_for_a_short_time_keeps_its_pending_pod(product: InstalledProduct) -> None:
    async with product.scope("001-b", after="60s") as scope:
        (claim,) = await scope.run_pods(1)
        node = claim["status"]["nodeName"]
        await scope.inject_node_fault(NotReady(for_seconds=15), node=node)
        await wait_until(lambda: scope.assert_node_not_ready(node))
        await scope.replace_pod()
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: scope.assert_node_ready_status(node, ready="True"))
        assert [pod["spec"]["nodeName"] for pod in await scope.pods()] == [node]
        await scope.assert_one_node_launched()


@pytest.mark.row("001-c")
async def test_notready_node_is_replaced_only_after_the_grace_period(product: InstalledProduct) -> None:
    async with product.scope("001-c", after="120s") as scope:
        (claim,) = await scope.run_pods(1)
        node = claim["status"]["nodeName"]
        await scope.inject_node_fault(NotReady(), node=node)
        not_ready_at = ready_changed_at(await wait_until(lambda: scope.assert_node_not_ready(node)))
        await scope.replace_pod()
        second = await wait_until(lambda: scope.assert_newest_nodeclaim(2))
        (second_nodeclaim,) = [one for one in await scope.nodeclaims() if one["metadata"]["name"] == second]
        assert _parse_time(second_nodeclaim["metadata"]["creationTimestamp"]) - not_ready_at >= timedelta(seconds=GRACE)
        await wait_until(lambda: scope.assert_event(claim["metadata"]["name"], "NotReadyGraceOver", node))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("001-d")
async def test_undeclared_taint_is_explained_and_the_node_is_replaced(product: InstalledProduct) -> None:
    undeclared = Taint(key="stranger.example.com/keep-out", effect="NoSchedule")
    async with product.scope("001-d", after="3s") as scope:
        await scope.inject_node_fault(AddTaint(taints=(undeclared,)), count=1)
        await scope.create_deployment(1)
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)
        first = (await scope.nodeclaim_workflows())[0].name
        await wait_until(lambda: scope.assert_event(first, "UndeclaredTaint", undeclared.key, "startupTaints"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([first]))


@pytest.mark.row("001-e")
async def test_instance_that_never_registers_is_replaced_at_its_deadline(product: InstalledProduct) -> None:
    async with product.scope("001-e") as scope:
        await scope.inject_node_fault(NeverRegister(), count=1)
        await scope.create_deployment(1)
        first = await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        await wait_until(lambda: scope.assert_event(first, "RegistrationTimeout"))
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([first]))
        await wait_until(lambda: scope.assert_instances_alive(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("001-e")
async def test_failing_launch_times_out_and_is_replaced(product: InstalledProduct) -> None:
    async with product.scope("001-e") as scope:
        fault = scope.inject_aws_fault("5xx", "CreateFleet")
        await scope.create_deployment(1)
        first = await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        await wait_until(lambda: scope.assert_event(first, "LaunchTimeout"))
        scope.remove_aws_fault(fault)
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([first]))
        await wait_until(lambda: scope.assert_instances_alive(1))


@pytest.mark.row("001-f")
async def test_pod_waits_for_the_device_plugin_on_its_node(product: InstalledProduct) -> None:
    async with product.scope("001-f", **GPU) as scope:
        await scope.inject_node_fault(LateDevices(seconds=None))
        await scope.create_deployment(1, **gpu_pod(scope))
        (claim,) = await wait_until(lambda: scope.assert_initialization_waits(labels.RESOURCE_NOT_REGISTERED))
        assert "nvidia.com/gpu" in condition_reason(claim, labels.INITIALIZED_CONDITION)
        await scope.assert_one_node_launched()
        await _run_device_plugin(scope, claim["status"]["nodeName"])
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()


@pytest.mark.row("001-h")
async def test_gpu_node_that_installs_drivers_is_not_overdue(product: InstalledProduct) -> None:
    async with product.scope("001-h", **GPU) as scope:
        await scope.inject_node_fault(SlowReady(seconds=FOREVER))
        await scope.create_deployment(1, **gpu_pod(scope))
        (claim,) = await wait_until(lambda: scope.assert_initialization_waits(labels.NODE_NOT_READY))
        name = claim["metadata"]["name"]
        await wait_until(lambda: scope.assert_blocked_by(name, labels.NODE_NOT_READY))
        nodeclaim = await scope.nodeclaim_workflow(name)
        assert nodeclaim.deadline and nodeclaim.node_name and not nodeclaim.overdue
        await scope.assert_one_node_launched()
        await scope.report_kubelet_ready(nodeclaim.node_name)
        await _run_device_plugin(scope, nodeclaim.node_name)
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()


@pytest.mark.row("001-i")
async def test_lasting_startup_taint_makes_the_node_overdue(product: InstalledProduct) -> None:
    async with product.scope("001-i", startup_taints=DECLARED) as scope:
        await scope.create_deployment(1)
        name = await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        await wait_until(lambda: scope.assert_event(name, "InitializationOverdue", CILIUM))
        nodeclaim = await wait_until(lambda: _assert_overdue(scope, name))
        await wait_until(
            lambda: product.metric_value("tenure_overdue_total", nodepool=scope.name, phase="Initialization")
        )
        await assert_throughout(scope.assert_one_node_launched, seconds=5)
        await scope.remove_taints(nodeclaim.node_name, CILIUM)
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: _assert_not_overdue(scope, name))
        await scope.assert_one_node_launched()


async def _assert_overdue(scope: ClusterScope, claim: str) -> NodeClaimSummary:
    nodeclaim = await scope.nodeclaim_workflow(claim)
    assert nodeclaim.overdue and labels.STARTUP_TAINTS_EXIST in nodeclaim.blocked_by, nodeclaim
    return nodeclaim


async def _assert_not_overdue(scope: ClusterScope, claim: str) -> None:
    assert not (await scope.nodeclaim_workflow(claim)).overdue, f"{claim} is still overdue"


async def _run_device_plugin(scope: ClusterScope, node: str) -> None:
    devices = {"nvidia.com/gpu": "1"}
    await scope.product.patch_status(f"/api/v1/nodes/{node}", {"capacity": devices, "allocatable": devices})


def _parse_time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)
