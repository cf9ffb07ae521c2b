"""Launches for a pod stop when nodes do not help it."""

import pytest

from tenure.kube.client.resources import NODE_POOLS
from tenure.model.plan import UNUSED_NODE_LIMIT
from tenure.sandbox.nodes.fault_rules import AddTaint
from tenure.sandbox.nodes.userdata.kubelet_join import Taint
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct

TAINT = Taint(key="stranger.example.com/keep-out", effect="NoSchedule")
"""An agent that Tenure does not know sets it on each new node."""
REASON = "untolerated taint"
"""In kube-scheduler's message."""
BACKOFF_SECONDS = 30.0
"""Less than the first back-off."""


@pytest.mark.row("001-o")
@pytest.mark.timeout(420)
async def test_launches_stop_after_three_unused_nodes_until_a_relevant_change(product: InstalledProduct) -> None:
    async with product.scope("001-o", after="2s") as scope:
        rule = await scope.inject_node_fault(AddTaint(taints=(TAINT,)))
        await scope.create_deployment(1)
        (pod,) = await wait_until(lambda: _assert_one_pod(scope))
        name = pod["metadata"]["name"]
        await wait_until(
            lambda: scope.assert_event(name, "FailedScheduling", "3 nodes were launched for this pod", REASON),
            seconds=240,
        )
        await assert_throughout(lambda: scope.assert_nodes_launched(UNUSED_NODE_LIMIT), seconds=BACKOFF_SECONDS)
        code, stuck = await product.run_cli("stuck")
        (item,) = [one for one in stuck["late"] if one["what"].endswith(f"/{name}")]
        assert code == 1 and REASON in item["blockedBy"]
        _, (why,) = await product.run_cli("why", name)
        assert REASON in why["verdict"]["sentence"]
        await scope.remove_node_fault(rule)
        await product.patch(NODE_POOLS.path(scope.name), {"spec": {"weight": 7}})
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(UNUSED_NODE_LIMIT + 1)


async def _assert_one_pod(scope: ClusterScope) -> list[Object]:
    pods = await scope.pods()
    assert len(pods) == 1
    return pods
