"""The worker is killed after events chosen by a seed, again and again: the end is that of a run without kills.

`TENURE_KILLS`, `TENURE_CHURN` (nodes), `TENURE_APART` (events) and `TENURE_SEED` make it longer, larger or another one;
`make chaos` does.
"""

import asyncio
import os
from contextlib import AsyncExitStack

import pytest

from tests.chaos import books
from tests.chaos.churn import Corner
from tests.chaos.histories import Histories
from tests.chaos.killing import Killer
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct

KILLS = int(os.environ.get("TENURE_KILLS", "10"))
NODES = int(os.environ.get("TENURE_CHURN", "10"))
SEED = int(os.environ.get("TENURE_SEED", "1"))
CORNERS = 5
APART = int(os.environ.get("TENURE_APART", "150"))
"""Events between two kills at most: from the first one after the start to well under way."""
SETTINGS = {"NOT_READY_GRACE": "10m"}


@pytest.mark.timeout(300 + 60 * KILLS)
async def test_a_churn_ends_as_if_the_worker_had_never_been_killed(product: OwnProduct) -> None:
    await product.rest()
    async with AsyncExitStack() as stack:
        histories = await stack.enter_async_context(Histories(product).follow())
        killer = Killer(product, histories, kills=KILLS, apart=APART, seed=SEED)
        scenes = [await stack.enter_async_context(product.scene("churn")) for _ in range(CORNERS)]
        corners = [
            Corner(scene, size=max(1, NODES // CORNERS), seed=SEED, first=number) for number, scene in enumerate(scenes)
        ]
        async with asyncio.TaskGroup() as group:
            group.create_task(killer.work(**SETTINGS))
            for corner in corners:
                group.create_task(corner.play(lambda: killer.left > 0))
        for scene in scenes:
            await eventually(lambda one=scene: books.nodes_are_whole(one))  # type: ignore[misc]
        await asyncio.gather(*(corner.end() for corner in corners))
        for scene in scenes:
            await books.lives_were_lived(scene)
            books.tokens_were_kept(scene)
        await eventually(lambda: books.nothing_lingers(product, scenes))
        assert len(killer.moments) == KILLS
        assert not histories.failed_tasks, histories.failed_tasks
