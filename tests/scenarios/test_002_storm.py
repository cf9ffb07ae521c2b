"""Many nodes at once: what replaces them is bought before they are empty, elsewhere, and budgets hold all the while."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest

from tenure.apis import labels
from tenure.sandbox.errors import ApiError
from tenure.sandbox.nodes.fault_rules import SlowReady
from tests.scenarios.announced import SOON, name_of, running, warn
from tests.support.product.drains import budget, budget_counts
from tests.support.product.eventually import eventually
from tests.support.product.objects import Object
from tests.support.product.product import Product
from tests.support.product.scene import Scene

NODES = 12
"""Two more than make a storm: warnings of a busy machine come in two batches, and of exactly ten one may be late."""
MAY_BE_GONE = 3
SLOWLY = 20.0
"""Seconds until a node that replaces another is Ready."""
TWO_CPUS = ("m5.large", "m5a.large", "m6a.large", "m6i.large", "c5.large", "c6i.large")


@pytest.mark.row("002-l")
async def test_a_dozen_nodes_interrupted_together_are_replaced_at_once_and_from_elsewhere(product: Product) -> None:
    async with product.scene("002-l-storm", types=TWO_CPUS, capacity_type="spot") as scene:
        claims = await running(scene, NODES)
        await scene.make(budget(scene.name, maxUnavailable=MAY_BE_GONE))
        await eventually(lambda: budget_counts(scene, NODES))
        names, taken = [name_of(one) for one in claims], {_pool_of(one) for one in claims}
        pods = {one["metadata"]["uid"] for one in await scene.pods()}
        # The warnings of a busy machine may come in two batches, and pods leave as soon as a first node can take them.
        await scene.trouble(SlowReady(seconds=SLOWLY))
        counting = asyncio.create_task(_fewest(scene))
        try:
            warn(product, *claims)
            await eventually(partial(_bought_before_the_last_left, scene, names, pods), seconds=SOON)
            await eventually(lambda: scene.claims_are_gone(names), seconds=2 * SOON)
            await eventually(lambda: scene.pods_run(NODES))
        finally:
            counting.cancel()
            fewest = await counting
        assert fewest >= NODES - MAY_BE_GONE
        bought = [_pool_of(one) for one in await scene.claims()]
        assert not taken.intersection(bought), (taken, bought)
        assert len({zone for _, zone in bought}) > 1, bought
        await eventually(lambda: scene.nodes_were_bought(2 * NODES))


async def _bought_before_the_last_left(scene: Scene, names: Sequence[str], pods: set[str]) -> None:
    new = [one for one in await scene.claims() if name_of(one) not in names]
    assert len([one for one in new if one.get("status", {}).get("providerID")]) == NODES, len(new)
    left = pods & {one["metadata"]["uid"] for one in await scene.pods()}
    assert left, "the last pod has left before"


async def _fewest(scene: Scene) -> int:
    """Pods that ran at any look, until it is told to stop. A busy API server that refuses one shows nothing."""
    fewest = NODES
    try:
        while True:
            with suppress(ApiError):
                fewest = min(fewest, len([one for one in await scene.pods() if _serves(one)]))
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        return fewest


def _serves(pod: Object) -> bool:
    """By its containers: Ready is taken for a moment from pods that start just when their node turns Ready."""
    said = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
    return said.get("ContainersReady") == "True" and "deletionTimestamp" not in pod["metadata"]


def _pool_of(claim: Object) -> tuple[str, str]:
    marks = claim["metadata"]["labels"]
    return marks[labels.INSTANCE_TYPE], marks[labels.ZONE]
