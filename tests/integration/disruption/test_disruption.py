"""Voluntary disruption on real components: a drifted node is replaced before it is deleted; two half-empty nodes
become one.
"""

import pytest
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.disruption.commands import DisruptionState
from tests.support.product.cluster_scope import ClusterScope, condition_status, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct
from tests.support.product.underutilized_nodes import (
    CONSOLIDATION,
    assert_one_remaining,
    make_underutilized_nodes,
    small_deployment_name,
)
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow

SCARCE_TYPE = "c5.large"
"""An instance type that no other shared test launches."""
COMMAND_TIMEOUT_SECONDS = 240.0
"""Seconds for a command, including the boot of a replacement and the drain of a candidate."""


async def test_drifted_node_is_deleted_after_its_replacement_is_initialized(product: InstalledProduct) -> None:
    async with product.scope("drifted") as scope:
        (old,) = object_names(await scope.run_pods(1))
        await product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
        await wait_until(lambda: _assert_replaced(scope, old), seconds=COMMAND_TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_event(old, "DisruptionTerminating", "Drifted"))
        await wait_until(lambda: scope.assert_pods_running(1))
        (new,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        assert new["metadata"]["labels"]["team"] == "web"
        assert new["metadata"]["annotations"][labels.REPLACES]
        expected_event = "DisruptionLaunching", "Launching NodeClaim: Drifted"
        await wait_until(lambda: scope.assert_event(new["metadata"]["name"], *expected_event))
        await wait_until(lambda: _assert_last_pod_event_reported(scope))
        await scope.wait_until_nodes_launched(2)
        await wait_until(lambda: scope.assert_instances_alive(1))


async def _assert_replaced(scope: ClusterScope, old: str) -> None:
    """The old node is never deleted before its replacement is initialized; the old one is read first."""
    before = await scope.product.find(NODE_CLAIMS.path(old))
    new = [one for one in await scope.nodeclaims() if one["metadata"]["name"] != old]
    terminating = before is None or "deletionTimestamp" in before["metadata"]
    if terminating and [condition_status(one, "Initialized") for one in new] != ["True"]:
        pytest.fail(f"{old} is deleting, and its replacements are {[one.get('status') for one in new]}")
    assert before is None, f"{old} still exists, next to {object_names(new)}"


async def _assert_last_pod_event_reported(scope: ClusterScope) -> None:
    claim = await _assert_single_nodeclaim(scope)
    assert claim["status"].get("lastPodEventTime"), "lastPodEventTime is missing"


async def _assert_single_nodeclaim(scope: ClusterScope) -> Object:
    claims = await scope.nodeclaims()
    assert len(claims) == 1, object_names(claims)
    return claims[0]


async def test_two_underutilized_nodes_are_consolidated_into_one(product: InstalledProduct) -> None:
    async with product.scope("halves") as scope:
        before = object_names(await make_underutilized_nodes(scope))
        await product.patch(scope.pool_path, {"spec": {"disruption": CONSOLIDATION}})
        remaining = await wait_until(lambda: assert_one_remaining(scope, before), seconds=COMMAND_TIMEOUT_SECONDS)
        (removed,) = {*before} - {remaining}
        await wait_until(lambda: scope.assert_event(removed, "DisruptionTerminating", "Underutilized"))
        await wait_until(lambda: scope.assert_pods_running(2, small_deployment_name(scope)))
        await scope.wait_until_nodes_launched(2)
        await wait_until(lambda: scope.assert_instances_alive(1))
        (claim,) = await scope.nodeclaims()
        await wait_until(lambda: scope.assert_node_not_disrupted(claim["status"]["nodeName"]))


async def test_node_without_available_replacement_stays_in_service(product: InstalledProduct) -> None:
    """Its NodePool enters backoff; other tests of this file are not delayed."""
    async with product.scope("scarce", types=(SCARCE_TYPE,)) as scope:
        (old,) = await scope.run_pods(1)
        product.aws.set_pool(0, instance_type=SCARCE_TYPE)
        try:
            await product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
            await wait_until(lambda: _assert_backoff_recorded(scope), seconds=COMMAND_TIMEOUT_SECONDS)
            await scope.assert_nodeclaims_exist(object_names([old]))
            await wait_until(lambda: scope.assert_nodes_initialized(1))
            await wait_until(lambda: scope.assert_node_not_disrupted(old["status"]["nodeName"]))
            await wait_until(lambda: _assert_not_disrupted(scope))
            await wait_until(
                lambda: scope.assert_event(object_names([old])[0], "DisruptionBlocked", "Drifted", "replacement")
            )
            await scope.assert_pods_running(1)
            assert len(scope.launched_instances()) == 1
        finally:
            product.aws.clear_pools()


async def _assert_not_disrupted(scope: ClusterScope) -> None:
    now = await _assert_single_nodeclaim(scope)
    assert not condition_status(now, labels.DISRUPTION_REASON), now["status"]


async def _assert_backoff_recorded(scope: ClusterScope) -> None:
    cluster = ids.cluster(scope.product.sandbox.plan.cluster_name)
    handle = scope.product.temporal.get_workflow_handle(cluster)
    try:
        state: DisruptionState = await handle.query(ClusterWorkflow.state)
    except (RPCError, WorkflowQueryFailedError) as error:
        raise AssertionError("the Cluster workflow does not respond") from error
    assert scope.name in {one.pool for one in state.backoffs}, state
