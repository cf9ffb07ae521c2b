"""Static NodePool: its replicas are kept through node and worker failures; while stable it adds no events."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import BadInput, TryLater
from tenure.model.signals import Resume
from tests.support.fakes.kubernetes import FakeNodeClaims
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import count_scheduled, wait_until, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import pause_for
from tests.support.workflows.static_nodepools import start_static_nodepool, static_nodepool
from tests.unit.workflows.continue_as_new import wait_until_continued_as_new
from workflows.nodepool import NodePoolWorkflow


async def test_missing_replicas_are_created_once(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 3)
    await fake.sleep(minutes=1)
    before = len((await pool.handle.fetch_history()).events)
    await fake.sleep(hours=5)
    assert len((await pool.handle.fetch_history()).events) == before
    assert await count_scheduled(pool.handle, "reconcile_replicas") == 1
    assert await pool.details_mention("3 desired, **3** running, 0 terminating", "| waits for | nothing |")


async def test_deleting_nodeclaim_is_replaced_before_it_is_gone(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 2)
    terminating = pool.existing_names()[0]
    fake.claims.set_status(terminating, deleting=True)
    await pool.signal_observed()
    await wait_until(lambda: pool.has_existing(2))
    assert len(fake.claims.found) == 3
    await pool.signal_observed()
    del fake.claims.found[terminating]
    await pool.signal_observed()
    await wait_until(lambda: pool.details_mention("2 desired, **2** running, 0 terminating"))
    assert len(pool.existing_names()) == 2


async def test_scaling_down_deletes_and_scaling_up_creates(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 3)
    await pool.scale(1)
    await wait_until(lambda: pool.has_existing(1))
    await pool.signal_observed()
    await pool.scale(4)
    await wait_until(lambda: pool.has_existing(4))
    await pool.signal_observed()
    await pool.scale(0)
    await wait_until(lambda: pool.has_existing(0))


async def test_node_limit_holds_without_polling(fake: WorkerHarness) -> None:
    pool = await start_static_nodepool(fake, 10, limits={"nodes": "5"})
    await wait_until(lambda: pool.has_existing(5))
    await pool.signal_observed()
    await wait_until(lambda: pool.details_mention("10 desired, **5** running", "limits.nodes=5"))
    await fake.sleep(seconds=1)
    before = len((await pool.handle.fetch_history()).events)
    await fake.sleep(hours=2)
    assert len((await pool.handle.fetch_history()).events) == before
    await pool.scale(10, limits={"nodes": "12"})
    await wait_until(lambda: pool.has_existing(10))


async def test_unready_nodeclass_delays_creation(fake: WorkerHarness) -> None:
    fake.node_classes.add("default", ready="False")
    pool = await start_static_nodepool(fake, 2)
    await wait_until(lambda: pool.waits_for("EC2NodeClass default is not ready"))
    assert not fake.claims.found
    fake.node_classes.add("default")
    await pool.signal_observed(node_class_ready="True now")
    await wait_until(lambda: pool.has_existing(2))


async def test_nodeclass_that_was_unready_during_a_step_delays_creation_only_briefly(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch reports it as ready before and after the step."""
    fake.node_classes.add("default", ready="False")
    pool, publish = await static_nodepool(fake, 0), fake.events.publish

    async def recover_and_publish(**event: Any) -> None:
        if event["reason"] == labels.REPLICAS_WAIT and fake.node_classes.found["default"].status.conditions[0].is_false:
            await pool.signal_observed(node_class_ready="False")
            fake.node_classes.add("default")
            await pool.signal_observed()
        await publish(**event)

    monkeypatch.setattr(fake.events, "publish", recover_and_publish)
    await pool.scale(2)
    await wait_until_skipping_time(fake, lambda: pool.has_existing(2), seconds=10)


async def test_disabled_feature_gate_blocks_static_nodepool(fake: WorkerHarness) -> None:
    pool = await start_static_nodepool(fake, 2, gate="off")
    await wait_until(lambda: pool.details_mention("feature gate StaticCapacity, which is off"))
    await fake.sleep(minutes=10)
    assert fake.pools.statuses["default"][labels.VALIDATION_SUCCEEDED] == "False NodePoolValidationFailed"
    assert not fake.claims.found and await count_scheduled(pool.handle, "reconcile_replicas") == 0
    pool.gate = "on"
    await pool.signal_observed()
    await wait_until(lambda: pool.has_existing(2))
    assert fake.pools.statuses["default"][labels.VALIDATION_SUCCEEDED] == "True"


async def test_deleting_nodepool_creates_nothing(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 1)
    await pool.signal_observed(deleting=True, existing=0)
    await fake.sleep(minutes=5)
    assert await count_scheduled(pool.handle, "reconcile_replicas") == 1


class CrashingNodeClaims(FakeNodeClaims):
    """Creates some NodeClaims, and then does not respond until its worker stops."""

    left = 3

    async def create(self, claim: NodeClaim) -> NodeClaim:
        if self.left == 0:
            await asyncio.Event().wait()
        self.left -= 1
        return await super().create(claim)


async def test_worker_crash_during_creation_duplicates_nothing(skipping: WorkflowEnvironment) -> None:
    fake = WorkerHarness.on(skipping, claims=CrashingNodeClaims(), max_cached_workflows=0)
    async with fake.running_worker():
        pool = await start_static_nodepool(fake, 8)
        await wait_until(lambda: pool.has_existing(3))
    first = set(pool.existing_names())
    assert isinstance(fake.claims, CrashingNodeClaims)
    fake.claims.left = 100
    async with fake.running_worker():
        await wait_until_skipping_time(skipping, lambda: pool.has_existing(8), seconds=2)
        await pool.signal_observed()
        await skipping.sleep(timedelta(minutes=5))
    assert len(pool.plan_ids()) == 1 and first < set(pool.existing_names()) and len(fake.claims.found) == 8
    assert await count_scheduled(pool.handle, "reconcile_replicas") == 1


async def test_failed_step_keeps_its_plan_through_continue_as_new(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.claims.faults["create"] = [None, BadInput("denied by a webhook")]
    pool = await start_static_nodepool(fake, 4)
    await wait_until(lambda: pool.waits_for("denied by a webhook"))
    plan_id = (await pool.state()).replicas.plan_id
    # Not earlier: the next run retries at once and does not keep the fault.
    await wait_until_continued_as_new(pool.handle, monkeypatch, lambda number: pool.signal_observed(usage=str(number)))
    await wait_until_skipping_time(fake, lambda: pool.has_existing(4), seconds=10)
    assert pool.plan_ids() == {plan_id}


async def test_short_faults_keep_one_plan(fake: WorkerHarness) -> None:
    fake.claims.faults["create"] = [None, TryLater("503"), None, TryLater("503")]
    pool = await start_static_nodepool(fake, 6)
    await wait_until_skipping_time(fake, lambda: pool.has_existing(6))
    assert len(pool.plan_ids()) == 1


async def test_short_lived_nodeclaims_are_created_with_backoff(fake: WorkerHarness) -> None:
    """As without EC2 capacity: each NodeClaim is deleted right after its creation."""
    pool = await start_static_nodepool(fake, 2)
    made: set[str] = set()
    for _ in range(60):
        # Not a multiple of the backoff: the test server may hang if a signal arrives exactly when a timer fires.
        await fake.sleep(seconds=19.3)
        if fake.claims.found:
            await pool.signal_observed()
        made |= set(fake.claims.found)
        fake.claims.found.clear()
        await pool.signal_observed()
    assert 2 * 8 <= len(made) <= 2 * 13, len(made)
    await wait_until(lambda: pool.details_mention("the last NodeClaims failed"))
    await pool.scale(3)
    await wait_until(lambda: pool.has_existing(3))


async def test_nodeclaims_removed_before_observation_are_replaced(fake: WorkerHarness) -> None:
    pool = await start_static_nodepool(fake, 2)
    await wait_until(lambda: pool.has_existing(2))
    fake.claims.found.clear()
    await wait_until_skipping_time(fake, lambda: pool.has_existing(2))


async def test_paused_nodepool_keeps_surplus_and_creates_missing_nodes(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 3)
    await pool.handle.execute_update(NodePoolWorkflow.pause, await pause_for(fake, hours=1))
    await pool.scale(1)
    await wait_until(
        lambda: pool.details_mention("1 desired, **3** running", "| waits for | NodePool default is paused by ops")
    )
    await fake.sleep(minutes=30)
    assert len(pool.existing_names()) == 3
    await pool.scale(4)
    await wait_until(lambda: pool.has_existing(4))
    await pool.signal_observed()
    await pool.scale(2)
    await pool.handle.execute_update(NodePoolWorkflow.resume, Resume())
    await wait_until(lambda: pool.has_existing(2))


async def test_surplus_nodes_are_deleted_after_pause_ends(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 2)
    await pool.handle.execute_update(NodePoolWorkflow.pause, await pause_for(fake, hours=1))
    await pool.scale(1)
    await fake.sleep(minutes=50)
    assert len(pool.existing_names()) == 2
    await wait_until_skipping_time(fake, lambda: pool.has_existing(1), minutes=1)


async def test_large_nodepool_is_created_in_several_steps(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.nodepool.static_capacity.MAX_CREATED_PER_PASS", 4)
    pool = await start_static_nodepool(fake, 10)
    await wait_until_skipping_time(fake, lambda: pool.has_existing(10))
    assert len(pool.plan_ids()) == 1 and await count_scheduled(pool.handle, "reconcile_replicas") == 3
