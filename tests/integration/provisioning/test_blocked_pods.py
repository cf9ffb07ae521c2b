"""No node is launched for a pod that a PodDisruptionBudget keeps on its draining node."""

from functools import partial

from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import assert_budget_healthy, budget_path, pod_disruption_budget
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.product import InstalledProduct

_OBSERVED_SECONDS = 15
"""Longer than a batch, a plan and a launch."""


async def test_no_node_is_launched_for_a_pod_that_its_budget_never_releases(product: InstalledProduct) -> None:
    async with product.scope("held", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        await scope.apply_manifest(pod_disruption_budget(scope.name, maxUnavailable=0))
        await wait_until(partial(assert_budget_healthy, scope, 1))
        (name,) = object_names([claim])
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_conditions_mention(name, "maxUnavailable 0"))
        await assert_throughout(partial(_assert_nodeclaims_are, scope, [name]), seconds=_OBSERVED_SECONDS)
        assert len(scope.launched_instances()) == 1
        await product.patch(budget_path(scope.name), {"spec": {"maxUnavailable": 1}})
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        await wait_until(lambda: scope.assert_pods_running(1))


async def _assert_nodeclaims_are(scope: ClusterScope, names: list[str]) -> None:
    found = object_names(await scope.nodeclaims())
    assert found == names, f"{found} exist"
