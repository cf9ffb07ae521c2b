"""The worker is killed repeatedly after random events; the result equals that of a run without kills.

`TENURE_KILLS`, `TENURE_CHURN` (nodes), `TENURE_APART` (events) and `TENURE_SEED` change the run; `make chaos` uses
larger values.
"""

import asyncio
import os
from contextlib import AsyncExitStack

import pytest

from tests.chaos import consistency_checks
from tests.chaos.churn import ChurnScope
from tests.chaos.histories import HistoryFollower
from tests.chaos.worker_killer import WorkerKiller
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct

KILLS = int(os.environ.get("TENURE_KILLS", "10"))
NODES = int(os.environ.get("TENURE_CHURN", "10"))
SEED = int(os.environ.get("TENURE_SEED", "1"))
SCOPES = 5
MAX_EVENTS_BETWEEN_KILLS = int(os.environ.get("TENURE_APART", "150"))
"""Maximum number of events between two kills, from just after the start to well into the work."""
CONSOLIDATE_AFTER = "1m"
"""Longer than a series of kills, since a node that stays empty while no worker plans is disrupted."""
SETTINGS = {"NOT_READY_GRACE": "10m"}


@pytest.mark.timeout(300 + 60 * KILLS)
async def test_churn_with_kills_ends_consistently(product: DedicatedProduct) -> None:
    await product.stop_workers()
    async with AsyncExitStack() as stack:
        histories = await stack.enter_async_context(HistoryFollower(product).follow())
        killer = WorkerKiller(product, histories, kills=KILLS, max_events_between=MAX_EVENTS_BETWEEN_KILLS, seed=SEED)
        scopes = [
            await stack.enter_async_context(product.scope("churn", after=CONSOLIDATE_AFTER)) for _ in range(SCOPES)
        ]
        churn_scopes = [
            ChurnScope(scope, size=max(1, NODES // SCOPES), seed=SEED, first=number)
            for number, scope in enumerate(scopes)
        ]
        async with asyncio.TaskGroup() as group:
            group.create_task(killer.run_kills(**SETTINGS))
            for churn_scope in churn_scopes:
                group.create_task(churn_scope.run_actions(lambda: killer.kills_remaining > 0))
        for scope in scopes:
            await wait_until(lambda one=scope: consistency_checks.assert_nodes_consistent(one))  # type: ignore[misc]
        await asyncio.gather(*(churn_scope.remove_all() for churn_scope in churn_scopes))
        for scope in scopes:
            await consistency_checks.assert_workflows_completed(scope)
            consistency_checks.assert_client_tokens_respected(scope)
        await wait_until(lambda: consistency_checks.assert_nothing_remains(product, scopes))
        assert len(killer.kill_log) == KILLS
        assert not histories.failed_tasks, histories.failed_tasks
