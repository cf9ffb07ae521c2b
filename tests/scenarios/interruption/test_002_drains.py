"""Promise 3, drains: a drain blocked by a budget reports it, forces nothing, and continues when the budget is fixed."""

from functools import partial

import pytest

from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.drains import assert_budget_healthy, budget_path, pod_disruption_budget, time_until
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.product import InstalledProduct

SOON = 180.0
"""Seconds. The promises are ten and five, on an idle machine."""


@pytest.mark.row("002-j")
async def test_blocking_budget_is_reported_and_drain_continues_when_fixed(product: InstalledProduct) -> None:
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
            lambda: scope.assert_conditions_mention(name, "Draining", *expected, "will not clear on its own"),
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
    remaining = [
        one
        for one in await scope.pods()
        if one["spec"].get("nodeName") == node and "deletionTimestamp" not in one["metadata"]
    ]
    assert not remaining
