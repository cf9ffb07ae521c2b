"""Promise 1: an empty node goes away, or says why not."""

from datetime import timedelta

import pytest

from model.lifecycle import Phase
from tests.integration.eventually import eventually
from tests.integration.product import Product
from tests.integration.scene import names
from tests.scenarios.acts import CALM

AFTER = 4.0
"""consolidateAfter, in seconds."""
BOUND = AFTER + 60


@pytest.mark.row("000-a")
@CALM.scenario
async def test_emptied_nodes_all_go(product: Product) -> None:
    async with product.scene("000-a", after=f"{AFTER:g}s", budget="50%") as scene:
        claims = await scene.run(3)
        await scene.scale(0)
        await eventually(lambda: scene.claims_are_gone(names(claims)), seconds=BOUND)
        for life in await scene.lives():
            outcome = await product.lives.outcome(life)
            moments = {step.phase: step.at for step in outcome.story}
            assert outcome.reason == "Empty"
            assert moments[Phase.DRAIN] - moments[Phase.READY] >= timedelta(seconds=AFTER)
        await scene.nodes_were_bought(3)
