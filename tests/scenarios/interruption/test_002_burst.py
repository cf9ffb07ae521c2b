"""A burst of interruptions: replacements launch before the nodes are empty, in other capacity pools, within budgets."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest

from tenure.apis import labels
from tenure.sandbox.errors import ApiError
from tenure.sandbox.nodes.fault_rules import SlowReady
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.drains import assert_budget_healthy, pod_disruption_budget
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import SOON, nodeclaim_name, run_pods_with_rules, send_spot_warning
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct

NODES = 12
"""Two more than the threshold of a burst: on a busy machine the warnings arrive in two batches, and one of exactly
ten might be late.
"""
MAX_UNAVAILABLE = 3
READY_DELAY_SECONDS = 20.0
"""Seconds until the node of a replacement is Ready."""
TWO_CPUS = ("m5.large", "m5a.large", "m6a.large", "m6i.large", "c5.large", "c6i.large")


@pytest.mark.row("002-l")
async def test_interrupted_nodes_are_replaced_at_once_from_other_capacity_pools(product: InstalledProduct) -> None:
    async with product.scope("002-l-storm", types=TWO_CPUS, capacity_type="spot") as scope:
        claims = await run_pods_with_rules(scope, NODES)
        await scope.apply_manifest(pod_disruption_budget(scope.name, maxUnavailable=MAX_UNAVAILABLE))
        await wait_until(lambda: assert_budget_healthy(scope, NODES))
        names, interrupted_capacity = [nodeclaim_name(one) for one in claims], {_capacity_pool(one) for one in claims}
        pods = {one["metadata"]["uid"] for one in await scope.pods()}
        # Warnings may arrive in two batches on a busy machine, and pods move as soon as a first replacement is Ready.
        await scope.inject_node_fault(SlowReady(seconds=READY_DELAY_SECONDS))
        counting = asyncio.create_task(_min_running_pods(scope))
        try:
            send_spot_warning(product, *claims)
            await wait_until(partial(_assert_replaced_before_last_eviction, scope, names, pods), seconds=SOON)
            await wait_until(lambda: scope.assert_nodeclaims_deleted(names), seconds=2 * SOON)
            await wait_until(lambda: scope.assert_pods_running(NODES))
        finally:
            counting.cancel()
            min_running = await counting
        assert min_running >= NODES - MAX_UNAVAILABLE
        launched_capacity = [_capacity_pool(one) for one in await scope.nodeclaims()]
        assert not interrupted_capacity.intersection(launched_capacity), (interrupted_capacity, launched_capacity)
        assert len({zone for _, zone in launched_capacity}) > 1, launched_capacity
        await wait_until(lambda: scope.wait_until_nodes_launched(2 * NODES))


async def _assert_replaced_before_last_eviction(scope: ClusterScope, names: Sequence[str], pods: set[str]) -> None:
    new = [one for one in await scope.nodeclaims() if nodeclaim_name(one) not in names]
    assert len([one for one in new if one.get("status", {}).get("providerID")]) == NODES, len(new)
    remaining = pods & {one["metadata"]["uid"] for one in await scope.pods()}
    assert remaining, "the last pod was evicted before"


async def _min_running_pods(scope: ClusterScope) -> int:
    """Minimum number of serving pods over all polls, until cancelled. A rejected request of a busy API server is
    skipped.
    """
    min_running = NODES
    try:
        while True:
            with suppress(ApiError):
                min_running = min(min_running, len([one for one in await scope.pods() if _is_serving(one)]))
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        return min_running


def _is_serving(pod: Object) -> bool:
    """Checks ContainersReady: Ready is removed briefly from pods that start just when their node becomes Ready."""
    statuses = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
    return statuses.get("ContainersReady") == "True" and "deletionTimestamp" not in pod["metadata"]


def _capacity_pool(claim: Object) -> tuple[str, str]:
    node_labels = claim["metadata"]["labels"]
    return node_labels[labels.INSTANCE_TYPE], node_labels[labels.ZONE]
