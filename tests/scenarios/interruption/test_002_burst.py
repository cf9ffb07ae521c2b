"""Many nodes at once: what replaces them is bought before they are empty, elsewhere, and budgets hold all the while."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest

from tenure.apis import labels
from tenure.sandbox.errors import ApiError
from tenure.sandbox.nodes.fault_rules import SlowReady
from tests.support.product.drains import assert_budget_healthy, pod_disruption_budget
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import SOON, nodeclaim_name, run_pods_with_rules, send_spot_warning
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct
from tests.support.product.scene import ClusterScope

NODES = 12
"""Two more than make a storm: warnings of a busy machine come in two batches, and of exactly ten one may be late."""
MAX_UNAVAILABLE = 3
SLOWLY = 20.0
"""Seconds until a node that replaces another is Ready."""
TWO_CPUS = ("m5.large", "m5a.large", "m6a.large", "m6i.large", "c5.large", "c6i.large")


@pytest.mark.row("002-l")
async def test_a_dozen_nodes_interrupted_together_are_replaced_at_once_and_from_elsewhere(
    product: InstalledProduct,
) -> None:
    async with product.scope("002-l-storm", types=TWO_CPUS, capacity_type="spot") as scope:
        claims = await run_pods_with_rules(scope, NODES)
        await scope.apply_manifest(pod_disruption_budget(scope.name, maxUnavailable=MAX_UNAVAILABLE))
        await wait_until(lambda: assert_budget_healthy(scope, NODES))
        names, taken = [nodeclaim_name(one) for one in claims], {_capacity_pool(one) for one in claims}
        pods = {one["metadata"]["uid"] for one in await scope.pods()}
        # The warnings of a busy machine may come in two batches, and pods leave as soon as a first node can take them.
        await scope.inject_node_fault(SlowReady(seconds=SLOWLY))
        counting = asyncio.create_task(_min_running_pods(scope))
        try:
            send_spot_warning(product, *claims)
            await wait_until(partial(_assert_replaced_before_last_eviction, scope, names, pods), seconds=SOON)
            await wait_until(lambda: scope.assert_nodeclaims_deleted(names), seconds=2 * SOON)
            await wait_until(lambda: scope.assert_pods_running(NODES))
        finally:
            counting.cancel()
            fewest = await counting
        assert fewest >= NODES - MAX_UNAVAILABLE
        bought = [_capacity_pool(one) for one in await scope.nodeclaims()]
        assert not taken.intersection(bought), (taken, bought)
        assert len({zone for _, zone in bought}) > 1, bought
        await wait_until(lambda: scope.wait_until_nodes_launched(2 * NODES))


async def _assert_replaced_before_last_eviction(scope: ClusterScope, names: Sequence[str], pods: set[str]) -> None:
    new = [one for one in await scope.nodeclaims() if nodeclaim_name(one) not in names]
    assert len([one for one in new if one.get("status", {}).get("providerID")]) == NODES, len(new)
    left = pods & {one["metadata"]["uid"] for one in await scope.pods()}
    assert left, "the last pod has left before"


async def _min_running_pods(scope: ClusterScope) -> int:
    """Pods that ran at any look, until it is told to stop. A busy API server that refuses one shows nothing."""
    fewest = NODES
    try:
        while True:
            with suppress(ApiError):
                fewest = min(fewest, len([one for one in await scope.pods() if _is_serving(one)]))
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        return fewest


def _is_serving(pod: Object) -> bool:
    """By its containers: Ready is taken for a moment from pods that start just when their node turns Ready."""
    statuses = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
    return statuses.get("ContainersReady") == "True" and "deletionTimestamp" not in pod["metadata"]


def _capacity_pool(claim: Object) -> tuple[str, str]:
    node_labels = claim["metadata"]["labels"]
    return node_labels[labels.INSTANCE_TYPE], node_labels[labels.ZONE]
