"""Promise 3 at its end: a drain that a budget holds says so, forces nothing, and goes on when the budget is mended."""

from functools import partial

import pytest

from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.drains import budget, budget_counts, budget_path, timed
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import Product
from tests.support.product.scene import Scene

SOON = 180.0
"""Seconds; the promises are ten and five, on a machine that has nothing else to do."""


@pytest.mark.row("002-j")
async def test_a_budget_that_allows_nothing_is_named_and_the_drain_goes_on_when_it_is_mended(product: Product) -> None:
    async with product.scene("held", after="Never") as scene:
        claim, _ = await scene.run(2)
        await scene.make(budget(scene.name, minAvailable=2))
        await eventually(lambda: budget_counts(scene, 2))
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        await product.delete(NODE_CLAIMS.path(name))
        said = (f"PodDisruptionBudget default/{scene.name}", "minAvailable 2, 2 of 2 pods healthy, 2 needed, 0 may go")
        await timed(lambda: scene.says(name, "Draining", *said, "never passes"), "until the verdict shows", within=SOON)
        await eventually(lambda: scene.is_blocked_by(name, *said))
        await eventually(lambda: scene.event(node, "FailedDraining", *said))
        await throughout(lambda: scene.pods_run(2), seconds=3)
        assert NODECLAIM_TERMINATION_TIMESTAMP not in (await annotations(scene, name))
        await product.patch(budget_path(scene.name), {"spec": {"minAvailable": 1}})
        await timed(partial(one_pod_left, scene, node), "from mending the budget to the eviction", within=SOON)
        await eventually(lambda: scene.claims_are_gone([name]))
        await eventually(lambda: scene.pods_run(2))


async def annotations(scene: Scene, claim: str) -> dict[str, str]:
    found = await scene.product.kube.request("GET", NODE_CLAIMS.path(claim))
    marks: dict[str, str] = found["metadata"].get("annotations") or {}
    return marks


async def one_pod_left(scene: Scene, node: str) -> None:
    here = [
        one
        for one in await scene.pods()
        if one["spec"].get("nodeName") == node and "deletionTimestamp" not in one["metadata"]
    ]
    assert not here
