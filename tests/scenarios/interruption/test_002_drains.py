"""Promise 3 at its end: a drain that a budget holds says so, forces nothing, and goes on when the budget is mended."""

from functools import partial

import pytest

from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.drains import assert_budget_healthy, budget_path, pod_disruption_budget, time_until
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.product import InstalledProduct
from tests.support.product.scene import ClusterScope

SOON = 180.0
"""Seconds; the promises are ten and five, on a machine that has nothing else to do."""


@pytest.mark.row("002-j")
async def test_a_budget_that_allows_nothing_is_named_and_the_drain_goes_on_when_it_is_mended(
    product: InstalledProduct,
) -> None:
    async with product.scope("held", after="Never") as scope:
        claim, _ = await scope.run_pods(2)
        await scope.apply_manifest(pod_disruption_budget(scope.name, minAvailable=2))
        await wait_until(lambda: assert_budget_healthy(scope, 2))
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        await product.delete(NODE_CLAIMS.path(name))
        expected = (
            f"PodDisruptionBudget default/{scope.name}",
            "minAvailable 2, 2 of 2 pods healthy, 2 needed, 0 disruptions allowed",
        )
        await time_until(
            lambda: scope.assert_conditions_mention(name, "Draining", *expected, "never passes"),
            "until the verdict shows",
            within=SOON,
        )
        await wait_until(lambda: scope.assert_blocked_by(name, *expected))
        await wait_until(lambda: scope.assert_event(node, "FailedDraining", *expected))
        await assert_throughout(lambda: scope.assert_pods_running(2), seconds=3)
        assert NODECLAIM_TERMINATION_TIMESTAMP not in (await nodeclaim_annotations(scope, name))
        await product.patch(budget_path(scope.name), {"spec": {"minAvailable": 1}})
        await time_until(partial(assert_drained, scope, node), "from mending the budget to the eviction", within=SOON)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        await wait_until(lambda: scope.assert_pods_running(2))


async def nodeclaim_annotations(scope: ClusterScope, claim: str) -> dict[str, str]:
    found = await scope.product.kube.request("GET", NODE_CLAIMS.path(claim))
    values: dict[str, str] = found["metadata"].get("annotations") or {}
    return values


async def assert_drained(scope: ClusterScope, node: str) -> None:
    here = [
        one
        for one in await scope.pods()
        if one["spec"].get("nodeName") == node and "deletionTimestamp" not in one["metadata"]
    ]
    assert not here
