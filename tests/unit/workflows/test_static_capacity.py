"""A static pool: its number of nodes is kept, whatever happens to nodes and workers; idle it costs nothing."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim.state import Phase
from tenure.model.signals import Resume
from tests.support.fakes.kubernetes import FakeNodeClaims
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import count_scheduled, is_in_phase, wait_until, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import observe_empty, pause_for, ready_nodeclaim
from tests.support.workflows.static_nodepools import start_static_nodepool, static_nodepool
from tests.unit.workflows.continue_as_new import wait_until_continued_as_new
from workflows.nodepool import NodePoolWorkflow


async def test_what_is_missing_is_made_and_then_nothing_happens(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 3)
    await fake.sleep(minutes=1)
    before = len((await pool.handle.fetch_history()).events)
    await fake.sleep(hours=5)
    assert len((await pool.handle.fetch_history()).events) == before
    assert await count_scheduled(pool.handle, "reconcile_replicas") == 1
    assert await pool.details_mention("3 desired, **3** running, 0 going", "| waits for | nothing |")


async def test_a_claim_that_goes_or_fails_is_replaced_before_it_is_gone(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 2)
    terminating = pool.existing_names()[0]
    fake.claims.set_status(terminating, deleting=True)
    await pool.signal_observed()
    await wait_until(lambda: pool.has_existing(2))
    assert len(fake.claims.found) == 3
    await pool.signal_observed()
    del fake.claims.found[terminating]
    await pool.signal_observed()
    await wait_until(lambda: pool.details_mention("2 desired, **2** running, 0 going"))
    assert len(pool.existing_names()) == 2


async def test_scaling_down_deletes_and_scaling_up_makes(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 3)
    await pool.scale(1)
    await wait_until(lambda: pool.has_existing(1))
    await pool.signal_observed()
    await pool.scale(4)
    await wait_until(lambda: pool.has_existing(4))
    await pool.signal_observed()
    await pool.scale(0)
    await wait_until(lambda: pool.has_existing(0))


async def test_a_limit_holds_and_is_waited_for_without_looking(fake: WorkerHarness) -> None:
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


async def test_one_that_goes_holds_the_limit_until_it_is_gone(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 2, limits={"nodes": "2"})
    terminating = pool.existing_names()[0]
    fake.claims.set_status(terminating, deleting=True)
    await pool.signal_observed()
    await wait_until(lambda: pool.waits_for("1 of them terminating"))
    assert len(fake.claims.found) == 2
    del fake.claims.found[terminating]
    await pool.signal_observed()
    await wait_until(lambda: pool.has_existing(2))


async def test_a_class_that_is_not_ready_is_waited_for(fake: WorkerHarness) -> None:
    fake.node_classes.add("default", ready="False")
    pool = await start_static_nodepool(fake, 2)
    await wait_until(lambda: pool.waits_for("EC2NodeClass default is not ready"))
    assert not fake.claims.found
    fake.node_classes.add("default")
    await pool.signal_observed(node_class_ready="True now")
    await wait_until(lambda: pool.has_existing(2))


async def test_with_its_gate_off_a_static_pool_makes_nothing_and_says_so_until_it_is_on(fake: WorkerHarness) -> None:
    pool = await start_static_nodepool(fake, 2, gate="off")
    await wait_until(lambda: pool.details_mention("feature gate StaticCapacity, which is off"))
    await fake.sleep(minutes=10)
    assert fake.pools.statuses["default"][labels.VALIDATION_SUCCEEDED] == "False NodePoolValidationFailed"
    assert not fake.claims.found and await count_scheduled(pool.handle, "reconcile_replicas") == 0
    pool.gate = "on"
    await pool.signal_observed()
    await wait_until(lambda: pool.has_existing(2))
    assert fake.pools.statuses["default"][labels.VALIDATION_SUCCEEDED] == "True"


async def test_a_pool_that_is_going_makes_nothing(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 1)
    await pool.signal_observed(deleting=True, existing=0)
    await fake.sleep(minutes=5)
    assert await count_scheduled(pool.handle, "reconcile_replicas") == 1


class CrashingNodeClaims(FakeNodeClaims):
    """Creates some, and then does not answer for as long as its worker lives."""

    left = 3

    async def create(self, claim: NodeClaim) -> NodeClaim:
        if self.left == 0:
            await asyncio.Event().wait()
        self.left -= 1
        return await super().create(claim)


async def test_a_worker_that_dies_between_making_claims_leaves_none_twice(skipping: WorkflowEnvironment) -> None:
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


async def test_a_step_that_fails_goes_on_under_its_plan_also_after_continuing_as_new(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.claims.faults["create"] = [None, BadInput("denied by a webhook")]
    pool = await start_static_nodepool(fake, 4)
    await wait_until(lambda: pool.waits_for("denied by a webhook"))
    plan_id = (await pool.state()).replicas.plan_id
    # Not before: a run that follows tries again at once, and what was in the way is forgotten.
    await wait_until_continued_as_new(pool.handle, monkeypatch, lambda number: pool.signal_observed(usage=str(number)))
    await wait_until_skipping_time(fake, lambda: pool.has_existing(4), seconds=10)
    assert pool.plan_ids() == {plan_id}


async def test_a_fault_is_shown_and_tried_again(fake: WorkerHarness) -> None:
    fake.claims.faults["create"] = [BadInput("denied by a webhook")] * 2
    pool = await start_static_nodepool(fake, 1)
    await wait_until(lambda: pool.details_mention("denied by a webhook"))
    await fake.sleep(minutes=3)
    await wait_until(lambda: pool.has_existing(1))


async def test_short_faults_are_not_noticed(fake: WorkerHarness) -> None:
    fake.claims.faults["create"] = [None, TryLater("503"), None, TryLater("503")]
    pool = await start_static_nodepool(fake, 6)
    await wait_until_skipping_time(fake, lambda: pool.has_existing(6))
    assert len(pool.plan_ids()) == 1


async def test_claims_that_do_not_last_are_made_ever_more_slowly_until_the_pool_changes(fake: WorkerHarness) -> None:
    """As where EC2 has no capacity: each is given up as soon as it was made."""
    pool = await start_static_nodepool(fake, 2)
    made: set[str] = set()
    for _ in range(60):
        # No multiple of the pauses: what is told just as a timer fires, the test server may fail for good.
        await fake.sleep(seconds=19.3)
        if fake.claims.found:
            await pool.signal_observed()
        made |= set(fake.claims.found)
        fake.claims.found.clear()
        await pool.signal_observed()
    assert 2 * 8 <= len(made) <= 2 * 13, len(made)
    await wait_until(lambda: pool.details_mention("did not last"))
    await pool.scale(3)
    await wait_until(lambda: pool.has_existing(3))


async def test_claims_that_are_gone_before_the_watch_saw_them_are_missed_all_the_same(fake: WorkerHarness) -> None:
    pool = await start_static_nodepool(fake, 2)
    await wait_until(lambda: pool.has_existing(2))
    fake.claims.found.clear()
    await wait_until_skipping_time(fake, lambda: pool.has_existing(2))


async def test_a_paused_pool_loses_no_node_and_still_gets_what_is_missing(fake: WorkerHarness) -> None:
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


async def test_a_pause_that_ends_by_itself_lets_surplus_nodes_go(fake: WorkerHarness) -> None:
    pool = await static_nodepool(fake, 2)
    await pool.handle.execute_update(NodePoolWorkflow.pause, await pause_for(fake, hours=1))
    await pool.scale(1)
    await fake.sleep(minutes=50)
    assert len(pool.existing_names()) == 2
    await wait_until_skipping_time(fake, lambda: pool.has_existing(1), minutes=1)


async def test_a_large_pool_is_made_in_several_steps(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.nodepool.static_capacity.MOST_MADE", 4)
    pool = await start_static_nodepool(fake, 10)
    await wait_until_skipping_time(fake, lambda: pool.has_existing(10))
    assert len(pool.plan_ids()) == 1 and await count_scheduled(pool.handle, "reconcile_replicas") == 3


async def test_a_node_of_a_static_pool_stays_however_long_it_is_empty(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="Never")
    await observe_empty(fake, handle, consolidation="WhenEmpty/Never")
    await fake.sleep(days=3)
    assert await is_in_phase(handle, Phase.READY)
    assert fake.instances.terminated == []


async def test_even_a_wish_of_an_empty_static_node_is_refused(fake: WorkerHarness) -> None:
    """As where the pool became static under its nodes, by being made anew."""
    handle = await ready_nodeclaim(fake, expireAfter="Never")
    pool = await start_static_nodepool(fake, 1)
    await observe_empty(fake, handle)
    await fake.sleep(hours=1)
    assert await is_in_phase(handle, Phase.READY)
    assert "is static" in (await pool.state()).blocked_by
