"""Promise 1: an empty node is deleted, or reports why not."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter

import pytest

from tenure.apis import labels
from tenure.cli.nodes.stuck import find_stuck_nodes
from tenure.kube.client.resources import NODE_CLAIMS, NODES, PODS
from tenure.metrics import NODECLAIMS_NEEDING_ATTENTION
from tenure.model.nodeclaim.state import Phase
from tenure.sandbox.fault_proxy import ErrorResponse
from tenure.sandbox.nodes.fault_rules import NeverRegister, NotReady
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import (
    assert_budget_healthy,
    assert_drained_within,
    budget_path,
    pod_disruption_budget,
    read_phase_times,
    terminating_pod,
)
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import daemon_set, pod_spec, static_pod
from tests.support.product.product import InstalledProduct
from tests.support.product.shared_sandbox import FaultRule

AFTER = 4.0
"""consolidateAfter, in seconds."""
BOUND = AFTER + 60
NOTIFICATION_BOUND = timedelta(seconds=25)
"""From the release of a budget to the next drain: sooner than the next poll."""


@pytest.mark.row("000-a")
async def test_emptied_nodes_are_deleted(product: InstalledProduct) -> None:
    async with product.scope("000-a", after=f"{AFTER:g}s", budget="50%") as scope:
        claims = await scope.run_pods(3)
        scaled = datetime.now(UTC)
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names(claims)))
        for nodeclaim in await scope.nodeclaim_workflows():
            assert (await product.nodeclaim_workflows.fetch_outcome(nodeclaim)).reason == "Empty"
            phase_times = await read_phase_times(scope, nodeclaim)
            assert phase_times[Phase.DRAIN] - phase_times[Phase.READY] >= timedelta(seconds=AFTER)
        await assert_drained_within(scope, object_names(claims), BOUND, since=scaled)
        await scope.wait_until_nodes_launched(3)


@pytest.mark.row("000-b")
async def test_nodeclaims_without_node_do_not_block_others(product: InstalledProduct) -> None:
    async with product.scope("000-b", after="2s") as scope:
        claims = await scope.run_pods(3)
        phantom, *others = object_names(claims)
        await scope.inject_node_fault(NeverRegister(), count=1)
        await scope.scale_deployment(4)
        childless = await wait_until(lambda: scope.assert_newest_nodeclaim(4))
        await wait_until(lambda: scope.assert_conditions_mention(childless, "NodeNotFound"))
        node = NODES.path(claims[0]["status"]["nodeName"])
        await product.patch(node, {"metadata": {"finalizers": None}})
        await product.delete(node)
        scaled = datetime.now(UTC)
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(others))
        await assert_drained_within(scope, others, BOUND, since=scaled)
        await wait_until(lambda: scope.assert_event(phantom, "NodeNotFound", "no longer exists"))
        await wait_until(lambda: scope.assert_blocked_by(phantom, "NodeNotFound"))


@pytest.mark.row("000-c")
async def test_failed_deletion_removes_taint_and_is_retried(product: InstalledProduct) -> None:
    async with product.scope("000-c") as scope:
        (claim,) = await scope.run_pods(1)
        node = claim["status"]["nodeName"]
        for status in (409, 500):
            fault = scope.inject_api_fault(ErrorResponse(status), f"/nodeclaims/{claim['metadata']['name']}$", "DELETE")
            await scope.scale_deployment(0)
            # After five attempts the backoff is long enough for the pod to find the node untainted.
            await wait_until(partial(_assert_tried, fault, 5))
            await wait_until(lambda: scope.assert_node_not_disrupted(node))
            await scope.assert_nodeclaims_exist(object_names([claim]))
            await scope.scale_deployment(1)
            await wait_until(lambda: scope.assert_pods_running(1))
            scope.remove_api_fault(fault)
        await scope.assert_one_node_launched()
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))


async def _assert_tried(rule: FaultRule, times: int) -> None:
    assert rule.hits >= times, f"{rule.hits} attempts"


@pytest.mark.row("000-e")
async def test_used_up_budget_is_reported_on_node_and_nodepool(product: InstalledProduct) -> None:
    """10 % of two nodes rounds up to one, which the NotReady node uses up. An annotation keeps that node."""
    async with product.scope("000-e", after="1s", budget="10%") as scope:
        broken, healthy = await _run_pods_with_kept_notready_node(scope, 2)
        await scope.scale_deployment(0)
        expected = ("budget 10% of 2 nodes allows 1", "1 in use")
        await wait_until(lambda: scope.assert_event(scope.name, "DisruptionBlocked", *expected))
        (name,) = healthy
        await wait_until(lambda: scope.assert_conditions_mention(name, *expected))
        await wait_until(lambda: scope.assert_blocked_by(name, *expected))
        await wait_until(lambda: scope.assert_event(name, "DisruptionBlocked", *expected))
        await assert_throughout(lambda: scope.assert_nodeclaims_exist([name]), seconds=3)
        allowed = datetime.now(UTC)
        await product.patch(scope.pool_path, {"spec": {"disruption": {"budgets": [{"nodes": "2"}]}}})
        await wait_until(lambda: scope.assert_nodeclaims_deleted(healthy))
        await assert_drained_within(scope, healthy, BOUND, since=allowed)
        await scope.assert_node_ready_status(broken, ready="False")


@pytest.mark.row("000-e")
async def test_budget_headroom_is_signaled_before_next_poll(product: InstalledProduct) -> None:
    """The node that used it up becomes Ready when polls of the budget are a minute or more apart."""
    async with product.scope("000-e-signal", after="1s", budget="1") as scope:
        broken, healthy = await _run_pods_with_kept_notready_node(scope, 3)
        await scope.scale_deployment(0)
        for name in healthy:
            await wait_until(partial(scope.assert_blocked_by, name, "budget 1 of 3 nodes allows 1", "1 in use"))
        await asyncio.sleep(40)
        back = await scope.report_node_recovered(broken)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(healthy))
        first, second = sorted(
            [
                await read_phase_times(scope, nodeclaim)
                for nodeclaim in await scope.nodeclaim_workflows()
                if nodeclaim.name in healthy
            ],
            key=itemgetter(Phase.DRAIN),
        )
        assert (
            first[Phase.DRAIN] - back <= NOTIFICATION_BOUND
            and second[Phase.DRAIN] - first[Phase.DELETED] <= NOTIFICATION_BOUND
        )


async def _run_pods_with_kept_notready_node(scope: ClusterScope, pods: int) -> tuple[str, list[str]]:
    """Returns a NotReady Node that an annotation keeps, and the NodeClaims of the other nodes."""
    broken, *healthy = await scope.run_pods(pods)
    node = broken["status"]["nodeName"]
    await scope.product.patch(NODES.path(node), {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}})
    await scope.inject_node_fault(NotReady(), node=node)
    await wait_until(lambda: scope.assert_node_ready_status(node, ready="False"))
    return node, object_names(healthy)


@pytest.mark.row("000-m")
async def test_drain_that_never_ends_by_itself_needs_attention_until_its_budget_changes(
    product: InstalledProduct,
) -> None:
    code = "PodDisruptionBudgetAllowsNone"
    async with product.scope("000-m", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        (name,) = object_names([claim])
        await scope.apply_manifest(pod_disruption_budget(scope.name, maxUnavailable=0))
        await wait_until(lambda: assert_budget_healthy(scope, 1))
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_blocked_by(name, "needs attention", "maxUnavailable 0"))
        await wait_until(lambda: scope.assert_conditions_mention(name, code, "needs attention", "maxUnavailable 0"))
        await wait_until(lambda: scope.assert_event(name, "FailedDraining", "maxUnavailable 0"))
        await wait_until(
            lambda: product.metric_value(NODECLAIMS_NEEDING_ATTENTION.name, nodepool=scope.name, code=code)
        )
        assert not (await scope.nodeclaim_workflow(name)).overdue
        await wait_until(partial(_assert_stuck, product, name, is_listed=True))
        await product.patch(budget_path(scope.name), {"spec": {"maxUnavailable": 1}})
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        await _assert_stuck(product, name, is_listed=False)


async def _assert_stuck(product: InstalledProduct, name: str, *, is_listed: bool) -> None:
    nodeclaims, *_ = await find_stuck_nodes(product.temporal, product.connection.cluster)
    listed = {one.name: one.blocker for one in nodeclaims}
    assert (name in listed) is is_listed, listed
    assert not is_listed or "scale the workload up" in listed[name], listed


@pytest.mark.row("000-n")
async def test_empty_notready_node_does_not_count_against_its_own_budget(product: InstalledProduct) -> None:
    """10 % of five nodes rounds up to one. The other four nodes run pods."""
    async with product.scope("000-n", after="1s", budget="10%") as scope:
        claims = await scope.run_pods(5)
        broken, *healthy = claims
        node, name = broken["status"]["nodeName"], broken["metadata"]["name"]
        (pod,) = [one for one in await scope.pods() if one["spec"]["nodeName"] == node]
        await scope.inject_node_fault(NotReady(), node=node)
        await wait_until(lambda: scope.assert_node_ready_status(node, ready="False"))
        emptied = datetime.now(UTC)
        cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-100"}}}
        await product.patch(PODS.path(pod["metadata"]["name"], namespace="default"), cost)
        await scope.scale_deployment(4)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        await assert_drained_within(scope, [name], BOUND, since=emptied)
        await scope.assert_nodeclaims_exist(object_names(healthy))


@pytest.mark.row("000-h")
async def test_node_with_daemon_static_and_terminating_pods_is_empty(product: InstalledProduct) -> None:
    async with product.scope("000-h", after="2s") as scope:
        daemon = f"{scope.name}-daemon"
        await scope.apply_manifest(daemon_set(daemon, pool=scope.name))
        (claim,) = await scope.run_pods(1)
        node = await product.kube.request("GET", NODES.path(claim["status"]["nodeName"]))
        await scope.apply_manifest(static_pod(f"{scope.name}-static", node))
        async with terminating_pod(scope) as pod_path:
            await wait_until(lambda: scope.assert_pods_running(1, daemon))
            await scope.scale_deployment(0)
            await wait_until(lambda: scope.assert_nodeclaim_deleting(claim))
            still = await product.kube.request("GET", pod_path)
            assert still["metadata"]["deletionTimestamp"] and await scope.pods(daemon)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        (nodeclaim,) = await scope.nodeclaim_workflows()
        assert (await product.nodeclaim_workflows.fetch_outcome(nodeclaim)).reason == "Empty"


@pytest.mark.row("000-k")
async def test_all_nodepool_kinds_scale_in_and_faults_stay_in_their_nodepool(product: InstalledProduct) -> None:
    async with AsyncExitStack() as stack:
        cpu, gpu, spot, arm = [
            await stack.enter_async_context(product.scope("000-k", **pool))
            for pool in ({}, {"types": ["g4dn.xlarge"]}, {"capacity_type": "spot"}, {"types": ["m6g.large"]})
        ]
        device = {"containers": pod_spec(gpu.name, **{"nvidia.com/gpu": "1"})["containers"]}
        started = await asyncio.gather(cpu.run_pods(1), gpu.run_pods(1, **device), spot.run_pods(1), arm.run_pods(1))
        claims = [object_names(found) for found in started]
        (instance,) = gpu.alive_instances()
        fault = gpu.inject_aws_fault("error", "TerminateInstances", instance, code="OperationNotPermitted", http=400)
        scaled = datetime.now(UTC)
        await asyncio.gather(*(scope.scale_deployment(0) for scope in (cpu, gpu, spot, arm)))
        for scope, deleted in ((cpu, claims[0]), (spot, claims[2]), (arm, claims[3])):
            await wait_until(partial(scope.assert_nodeclaims_deleted, deleted))
            await assert_drained_within(scope, deleted, BOUND, since=scaled)
        assert gpu.alive_instances() == [instance]
        gpu.remove_aws_fault(fault)
        await wait_until(lambda: gpu.assert_nodeclaims_deleted(claims[1]))
