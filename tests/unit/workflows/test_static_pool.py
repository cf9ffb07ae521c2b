"""A static pool: its number of nodes is kept, whatever happens to nodes and workers; idle it costs nothing."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim_state import Phase
from tenure.model.signals import Resume
from tests.support.fakes.kubernetes import FakeClaims
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, has_come, in_time, scheduled
from tests.support.workflows.lives import emptied, pause_for, ready
from tests.support.workflows.static_pools import kept, static
from tests.unit.workflows.continuing import continued
from workflows.nodepool import NodePoolWorkflow


async def test_what_is_missing_is_made_and_then_nothing_happens(fake: World, skipping: WorkflowEnvironment) -> None:
    pool = await kept(fake, 3)
    await skipping.sleep(timedelta(minutes=1))
    before = len((await pool.handle.fetch_history()).events)
    await skipping.sleep(timedelta(hours=5))
    assert len((await pool.handle.fetch_history()).events) == before
    assert await scheduled(pool.handle, "keep_replicas") == 1
    assert await pool.says("3 desired, **3** running, 0 going", "| waits for | nothing |")


async def test_a_claim_that_goes_or_fails_is_replaced_before_it_is_gone(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pool = await kept(fake, 2)
    going = pool.standing()[0]
    fake.claims.give(going, deleting=True)
    await pool.see()
    await eventually(lambda: pool.stand(2))
    assert len(fake.claims.found) == 3
    await pool.see()
    del fake.claims.found[going]
    await pool.see()
    await eventually(lambda: pool.says("2 desired, **2** running, 0 going"))
    assert len(pool.standing()) == 2


async def test_scaling_down_deletes_and_scaling_up_makes(fake: World, skipping: WorkflowEnvironment) -> None:
    pool = await kept(fake, 3)
    await pool.scale(1)
    await eventually(lambda: pool.stand(1))
    await pool.see()
    await pool.scale(4)
    await eventually(lambda: pool.stand(4))
    await pool.see()
    await pool.scale(0)
    await eventually(lambda: pool.stand(0))


async def test_a_limit_holds_and_is_waited_for_without_looking(fake: World, skipping: WorkflowEnvironment) -> None:
    pool = await static(fake, 10, limits={"nodes": "5"})
    await eventually(lambda: pool.stand(5))
    await pool.see()
    await eventually(lambda: pool.says("10 desired, **5** running", "limits.nodes=5"))
    await skipping.sleep(timedelta(seconds=1))
    before = len((await pool.handle.fetch_history()).events)
    await skipping.sleep(timedelta(hours=2))
    assert len((await pool.handle.fetch_history()).events) == before
    await pool.scale(10, limits={"nodes": "12"})
    await eventually(lambda: pool.stand(10))


async def test_one_that_goes_holds_the_limit_until_it_is_gone(fake: World, skipping: WorkflowEnvironment) -> None:
    pool = await kept(fake, 2, limits={"nodes": "2"})
    going = pool.standing()[0]
    fake.claims.give(going, deleting=True)
    await pool.see()
    await eventually(lambda: pool.waits("1 of them going"))
    assert len(fake.claims.found) == 2
    del fake.claims.found[going]
    await pool.see()
    await eventually(lambda: pool.stand(2))


async def test_a_class_that_is_not_ready_is_waited_for(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.node_classes.add("default", ready="False")
    pool = await static(fake, 2)
    await eventually(lambda: pool.waits("EC2NodeClass default is not ready"))
    assert not fake.claims.found
    fake.node_classes.add("default")
    await pool.see(node_class_ready="True now")
    await eventually(lambda: pool.stand(2))


async def test_with_its_gate_off_a_static_pool_makes_nothing_and_says_so_until_it_is_on(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pool = await static(fake, 2, gate="off")
    await eventually(lambda: pool.says("feature gate StaticCapacity, which is off"))
    await skipping.sleep(timedelta(minutes=10))
    assert fake.pools.statuses["default"][labels.VALIDATION_SUCCEEDED] == "False NodePoolValidationFailed"
    assert not fake.claims.found and await scheduled(pool.handle, "keep_replicas") == 0
    pool.gate = "on"
    await pool.see()
    await eventually(lambda: pool.stand(2))
    assert fake.pools.statuses["default"][labels.VALIDATION_SUCCEEDED] == "True"


async def test_a_pool_that_is_going_makes_nothing(fake: World, skipping: WorkflowEnvironment) -> None:
    pool = await kept(fake, 1)
    await pool.see(deleting=True, standing=0)
    await skipping.sleep(timedelta(minutes=5))
    assert await scheduled(pool.handle, "keep_replicas") == 1


class HalfWay(FakeClaims):
    """Creates some, and then does not answer for as long as its worker lives."""

    left = 3

    async def create(self, claim: NodeClaim) -> NodeClaim:
        if self.left == 0:
            await asyncio.Event().wait()
        self.left -= 1
        return await super().create(claim)


async def test_a_worker_that_dies_between_making_claims_leaves_none_twice(skipping: WorkflowEnvironment) -> None:
    fake = World(skipping.client, claims=HalfWay(), cached=0)
    async with fake.working():
        pool = await static(fake, 8)
        await eventually(lambda: pool.stand(3))
    first = set(pool.standing())
    assert isinstance(fake.claims, HalfWay)
    fake.claims.left = 100
    async with fake.working():
        await in_time(skipping, lambda: pool.stand(8), seconds=2)
        await pool.see()
        await skipping.sleep(timedelta(minutes=5))
    assert len(pool.plans()) == 1 and first < set(pool.standing()) and len(fake.claims.found) == 8
    assert await scheduled(pool.handle, "keep_replicas") == 1


async def test_a_step_that_fails_goes_on_under_its_plan_also_after_continuing_as_new(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.claims.faults["create"] = [None, BadInput("denied by a webhook")]
    pool = await static(fake, 4)
    await eventually(lambda: pool.waits("denied by a webhook"))
    plan_id = (await pool.state()).replicas.plan_id
    # Not before: a run that follows tries again at once, and what was in the way is forgotten.
    await continued(pool.handle, monkeypatch, lambda number: pool.see(usage=str(number)))
    await in_time(skipping, lambda: pool.stand(4), seconds=10)
    assert pool.plans() == {plan_id}


async def test_a_fault_is_shown_and_tried_again(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.claims.faults["create"] = [BadInput("denied by a webhook")] * 2
    pool = await static(fake, 1)
    await eventually(lambda: pool.says("denied by a webhook"))
    await skipping.sleep(timedelta(minutes=3))
    await eventually(lambda: pool.stand(1))


async def test_short_faults_are_not_noticed(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.claims.faults["create"] = [None, TryLater("503"), None, TryLater("503")]
    pool = await static(fake, 6)
    await in_time(skipping, lambda: pool.stand(6))
    assert len(pool.plans()) == 1


async def test_claims_that_do_not_last_are_made_ever_more_slowly_until_the_pool_changes(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """As where EC2 has no capacity: each is given up as soon as it was made."""
    pool = await static(fake, 2)
    made: set[str] = set()
    for _ in range(60):
        # No multiple of the pauses: what is told just as a timer fires, the test server may fail for good.
        await skipping.sleep(timedelta(seconds=19.3))
        if fake.claims.found:
            await pool.see()
        made |= set(fake.claims.found)
        fake.claims.found.clear()
        await pool.see()
    assert 2 * 8 <= len(made) <= 2 * 13, len(made)
    await eventually(lambda: pool.says("did not last"))
    await pool.scale(3)
    await eventually(lambda: pool.stand(3))


async def test_claims_that_are_gone_before_the_watch_saw_them_are_missed_all_the_same(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pool = await static(fake, 2)
    await eventually(lambda: pool.stand(2))
    fake.claims.found.clear()
    await in_time(skipping, lambda: pool.stand(2))


async def test_a_paused_pool_loses_no_node_and_still_gets_what_is_missing(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pool = await kept(fake, 3)
    await pool.handle.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, hours=1))
    await pool.scale(1)
    await eventually(lambda: pool.says("1 desired, **3** running", "| waits for | NodePool default is paused by ops"))
    await skipping.sleep(timedelta(minutes=30))
    assert len(pool.standing()) == 3
    await pool.scale(4)
    await eventually(lambda: pool.stand(4))
    await pool.see()
    await pool.scale(2)
    await pool.handle.execute_update(NodePoolWorkflow.resume, Resume())
    await eventually(lambda: pool.stand(2))


async def test_a_pause_that_ends_by_itself_lets_surplus_nodes_go(fake: World, skipping: WorkflowEnvironment) -> None:
    pool = await kept(fake, 2)
    await pool.handle.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, hours=1))
    await pool.scale(1)
    await skipping.sleep(timedelta(minutes=50))
    assert len(pool.standing()) == 2
    await in_time(skipping, lambda: pool.stand(1), minutes=1)


async def test_a_large_pool_is_made_in_several_steps(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodepool.static_capacity.MOST_MADE", 4)
    pool = await static(fake, 10)
    await in_time(skipping, lambda: pool.stand(10))
    assert len(pool.plans()) == 1 and await scheduled(pool.handle, "keep_replicas") == 3


async def test_a_node_of_a_static_pool_stays_however_long_it_is_empty(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping, expireAfter="Never")
    await emptied(fake, skipping, handle, policy="WhenEmpty/Never")
    await skipping.sleep(timedelta(days=3))
    assert await has_come(handle, Phase.READY)
    assert fake.instances.terminated == []


async def test_even_a_wish_of_an_empty_static_node_is_refused(fake: World, skipping: WorkflowEnvironment) -> None:
    """As where the pool became static under its nodes, by being made anew."""
    handle = await ready(fake, skipping, expireAfter="Never")
    pool = await static(fake, 1)
    await emptied(fake, skipping, handle)
    await skipping.sleep(timedelta(hours=1))
    assert await has_come(handle, Phase.READY)
    assert "is static" in (await pool.state()).blocked_by
