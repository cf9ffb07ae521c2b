"""NodePool: while wishes wait, its budget is read when something is told of it, and else ever more slowly."""

from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.testing import WorkflowEnvironment

from tenure.model.observations import PoolSeen
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, eventually, in_time, scheduled
from tests.support.workflows.lives import emptied, pause_for, pool, ready
from tests.unit.workflows.test_nodepool import answers, ask, granted, refused, standing
from workflows.nodepool import NodePoolWorkflow

READ = "read_allowance"
WORN_OUT = {"labels": {"karpenter.sh/nodepool": "default"}, "ready": False}


async def waiting(fake: World, skipping: WorkflowEnvironment) -> Any:
    """`a` wishes to go, and the one node that the budget lets go is NotReady: b's."""
    await standing(fake, "a", "b")
    fake.nodes.join("node-b", "aws:///us-west-2a/i-b", **WORN_OUT)
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    return pools


async def test_a_budget_that_is_used_up_is_read_ever_more_slowly(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await waiting(fake, skipping)
    await skipping.sleep(timedelta(minutes=4))
    assert 3 <= await scheduled(pools, READ) <= 5
    await skipping.sleep(timedelta(hours=1))
    assert await scheduled(pools, READ) <= 20, "one in four minutes"
    fake.nodes.change("node-b", ready=True)
    await skipping.sleep(timedelta(minutes=4, seconds=5))
    assert await granted(fake, "a"), "though nobody told of it"


async def test_room_that_is_told_of_is_used_at_once_and_leaves_the_status_alone(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await waiting(fake, skipping)
    await skipping.sleep(timedelta(minutes=30))
    written = await scheduled(pools, "update_pool")
    fake.nodes.change("node-b", ready=True)
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, freed=7))
    await skipping.sleep(timedelta(seconds=1))
    await eventually(lambda: granted(fake, "a"))
    assert await scheduled(pools, "update_pool") == written


async def test_room_that_is_told_of_with_something_else_hides_nothing(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await waiting(fake, skipping)
    written = await scheduled(pools, "update_pool")
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, usage="more", freed=7))
    await in_time(skipping, lambda: wrote(pools, written + 1))


async def test_a_change_makes_looks_frequent_again(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await waiting(fake, skipping)
    await skipping.sleep(timedelta(minutes=30))
    looks = await scheduled(pools, READ)
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, freed=7))
    await skipping.sleep(timedelta(minutes=2))
    assert await scheduled(pools, READ) - looks >= 3


async def test_a_budget_of_nothing_is_read_again_only_when_the_pool_changes(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a")
    pools = await pool(fake, budgets=[{"nodes": "0"}])
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    await skipping.sleep(timedelta(minutes=50))
    assert await scheduled(pools, READ) == 1
    fake.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=2))
    await in_time(skipping, lambda: granted(fake, "a"))


async def test_a_paused_pool_reads_no_budget_until_it_goes_on(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await pools.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, minutes=50))
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    await skipping.sleep(timedelta(minutes=48))
    assert await scheduled(pools, READ) == 1 and not await granted(fake, "a")
    await skipping.sleep(timedelta(minutes=2, seconds=5))
    await eventually(lambda: granted(fake, "a"))


async def test_a_wish_that_is_said_again_is_answered_without_another_look(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await waiting(fake, skipping)
    await skipping.sleep(timedelta(minutes=30))
    looks = await scheduled(pools, READ)
    await ask(fake, skipping, pools, "a")
    await eventually(lambda: told_twice(fake, "a"))
    first, second = await answers(fake, "a")
    assert first == second and "1 in use" in second.blocked_by
    assert await scheduled(pools, READ) == looks


async def test_a_node_that_is_refused_asks_ever_more_slowly(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake, budgets=[{"nodes": "0"}])
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "budget 0"))
    await skipping.sleep(timedelta(minutes=11))
    assert await asked(handle) == 2
    await skipping.sleep(timedelta(hours=5))
    assert 5 <= await asked(handle) <= 8, "once an hour"
    assert await blocked(handle, "budget 0")


async def wrote(pools: Any, times: int) -> bool:
    return await scheduled(pools, "update_pool") >= times


async def told_twice(fake: World, name: str) -> bool:
    return len(await answers(fake, name)) == 2


async def asked(handle: Any) -> int:
    sent = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
    return sum(one.event_type == sent for one in (await handle.fetch_history()).events)


async def test_a_node_that_asks_again_goes_on_saying_what_it_waits_for_and_says_it_once(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await pool(fake, budgets=[{"nodes": "0"}])
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "budget 0"))
    await skipping.sleep(timedelta(minutes=15))
    shown = await upserts(handle)
    await skipping.sleep(timedelta(hours=2))
    assert await asked(handle) >= 3 and await blocked(handle, "budget 0")
    assert await upserts(handle) == shown
    assert fake.events.reasons("a").count("DisruptionBlocked") == 1


async def upserts(handle: Any) -> int:
    """How often its search attributes changed, marks of versions included."""
    history = await handle.fetch_history()
    kind = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
    return sum(event.event_type == kind for event in history.events)


async def test_who_waits_is_told_when_it_waits_for_something_else(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await waiting(fake, skipping)
    fake.pools.add("default", disruption={"budgets": [{"nodes": "0"}]})
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=2))
    await in_time(skipping, lambda: told_twice(fake, "a"))
    first, second = await answers(fake, "a")
    assert "budget 1 of" in first.blocked_by and "budget 0 of" in second.blocked_by
    fake.pools.add("default", disruption={"budgets": [{"nodes": "0"}], "consolidateAfter": "1h"})
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=3, generation=3))
    await skipping.sleep(timedelta(minutes=1))
    assert len(await answers(fake, "a")) == 2, "it waits for the same"
