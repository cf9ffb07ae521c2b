"""NodePool: permits within the budget, leases that lapse, pauses, and a status that is kept."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.model.disruption.commands import PermitRecalled
from tenure.model.errors import BadInput
from tenure.model.observations import PoolSeen
from tenure.model.signals import PermitAnswered, PermitAsked, PermitWithdrawn, Resume
from tests.support.fakes.asker import AskerWorkflow
from tests.support.fakes.worker import SHORTLY, World
from tests.support.workflows.eventually import eventually, idle, in_time, rolled, scheduled
from tests.support.workflows.lives import pause_for, pool
from workflows import ids
from workflows.nodepool import NodePoolWorkflow

Asker = WorkflowHandle[AskerWorkflow, None]


async def standing(fake: World, *names: str) -> None:
    """Initialized NodeClaims of the pool, and in the place of their workflows some that note what they are told."""
    for name in names:
        fake.claims.add(name)
        fake.claims.give(name, provider_id=f"aws:///us-west-2a/i-{name}", Initialized="True")
        await fake.client.start_workflow(AskerWorkflow.run, id=name, task_queue=ids.task_queue(fake.cluster))


async def ask(fake: World, skipping: WorkflowEnvironment, pools: Any, *names: str) -> None:
    """Wishes in this order: each node is empty since a second later than the one before."""
    now = await skipping.get_current_time()
    for second, name in enumerate(names):
        since = now - timedelta(minutes=1) + timedelta(seconds=second)
        wish = PermitAsked(claim_name=name, claim_uid=f"uid-{name}", workflow_id=name, reason="Empty", since=since)
        await pools.signal(NodePoolWorkflow.asked, wish)


async def answers(fake: World, name: str) -> list[PermitAnswered]:
    asker: Asker = fake.client.get_workflow_handle_for(AskerWorkflow.run, name)
    return await asker.query(AskerWorkflow.answers)


async def granted(fake: World, *names: str) -> bool:
    return all([any(one.granted for one in await answers(fake, name)) for name in names])


async def refused(fake: World, *names: str) -> bool:
    return all([any(not one.granted for one in await answers(fake, name)) for name in names])


async def test_a_budget_lets_the_longest_empty_go_and_tells_the_others_why(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b", "c", "d", "e")
    pools = await pool(fake, budgets=[{"nodes": "2"}])
    await ask(fake, skipping, pools, "c", "a", "e", "b")
    await in_time(skipping, lambda: granted(fake, "c", "a"))
    await in_time(skipping, lambda: refused(fake, "e", "b"))
    told = (await answers(fake, "e"))[0]
    assert "budget 2 of 5 nodes allows 2, 0 in use" in told.blocked_by
    assert not await granted(fake, "e") and not await granted(fake, "b")
    assert [one.claim_name for one in (await pools.query(NodePoolWorkflow.state)).permits] == ["c", "a"]


async def test_nodes_that_go_or_are_not_ready_use_the_budget_up(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a", "b", "c")
    fake.claims.give("b", deleting=True)
    fake.nodes.join("node-c", "aws:///us-west-2a/i-c", ready=False, labels={"karpenter.sh/nodepool": "default"})
    pools = await pool(fake, budgets=[{"nodes": "2"}])
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    assert "2 in use" in (await answers(fake, "a"))[0].blocked_by


async def test_a_permit_that_is_not_used_lapses_and_serves_the_next(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, pools, "a", "b")
    await in_time(skipping, lambda: granted(fake, "a"))
    (permit,) = await answers(fake, "a")
    assert permit.until
    await skipping.sleep(permit.until - await skipping.get_current_time() - timedelta(seconds=10))
    assert not await granted(fake, "b")
    await in_time(skipping, lambda: granted(fake, "b"), seconds=10)


async def test_a_permit_of_a_command_counts_until_it_cannot_begin_any_more_or_is_given_back(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b", "c")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    now = await skipping.get_current_time()
    wish = PermitAsked(claim_name="a", claim_uid="uid-a", workflow_id="a", reason="Empty", since=now)
    await pools.signal(NodePoolWorkflow.asked, wish.model_copy(update={"begins_within": timedelta(minutes=6)}))
    await in_time(skipping, lambda: granted(fake, "a"))
    await ask(fake, skipping, pools, "b", "c")
    await skipping.sleep(timedelta(minutes=7))
    assert not await granted(fake, "b"), "its taint may come only now"
    await in_time(skipping, lambda: granted(fake, "b"), seconds=10)
    await pools.signal(NodePoolWorkflow.recall, PermitRecalled(claim_uid="uid-b", why="it is paused"))
    await in_time(skipping, lambda: granted(fake, "c"))


async def test_a_permit_that_is_called_back_from_a_command_counts_until_it_has_put_its_nodes_back(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    now = await skipping.get_current_time()
    wish = PermitAsked(claim_name="a", claim_uid="uid-a", workflow_id="a", reason="Empty", since=now)
    await pools.signal(NodePoolWorkflow.asked, wish.model_copy(update={"begins_within": timedelta(minutes=6)}))
    await in_time(skipping, lambda: granted(fake, "a"))
    await pools.signal(NodePoolWorkflow.recall, PermitRecalled(claim_uid="uid-a", why="it is paused"))
    await ask(fake, skipping, pools, "b")
    await in_time(skipping, lambda: refused(fake, "b"))
    asker: Asker = fake.client.get_workflow_handle_for(AskerWorkflow.run, "a")
    assert [one.why for one in await asker.query(AskerWorkflow.recalls)] == ["it is paused"]
    await pools.signal(NodePoolWorkflow.withdrawn, PermitWithdrawn(claim_uid="uid-a", workflow_id="a"))
    await in_time(skipping, lambda: granted(fake, "b"))


async def test_a_permit_that_is_given_back_serves_the_next_at_once(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, pools, "a", "b")
    await in_time(skipping, lambda: granted(fake, "a"))
    await pools.signal(NodePoolWorkflow.withdrawn, PermitWithdrawn(claim_uid="uid-a"))
    await skipping.sleep(timedelta(seconds=1))
    await eventually(lambda: granted(fake, "b"))


async def test_a_node_that_is_gone_frees_the_budget_as_soon_as_the_pool_changes(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, pools, "a", "b")
    await in_time(skipping, lambda: granted(fake, "a"))
    del fake.claims.found["a"]
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, usage="less"))
    await skipping.sleep(timedelta(seconds=1))
    await eventually(lambda: granted(fake, "b"))


async def test_a_wish_taken_back_is_not_granted(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "0"}])
    await ask(fake, skipping, pools, "a", "b")
    await in_time(skipping, lambda: refused(fake, "a", "b"))
    await pools.signal(NodePoolWorkflow.withdrawn, PermitWithdrawn(claim_uid="uid-a"))
    fake.pools.add("default", disruption={"budgets": [{"nodes": "2"}]})
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=2))
    await in_time(skipping, lambda: granted(fake, "b"))
    assert not await granted(fake, "a")


async def test_a_wish_that_is_said_twice_is_one_wish(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "2"}])
    await ask(fake, skipping, pools, "a", "a", "b", "a")
    await in_time(skipping, lambda: granted(fake, "a", "b"))
    permits = (await pools.query(NodePoolWorkflow.state)).permits
    assert sorted(one.claim_name for one in permits) == ["a", "b"]


async def test_a_refusal_is_told_once_and_again_only_to_one_that_asks_again(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a")
    pools = await pool(fake, budgets=[{"nodes": "0"}])
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    await skipping.sleep(timedelta(minutes=5))
    assert len(await answers(fake, "a")) == 1
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: told(fake, "a", 2))


async def test_a_paused_pool_refuses_with_who_paused_it_until_it_is_resumed(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await pools.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, hours=1))
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    assert "paused by ops@example.com" in (await answers(fake, "a"))[0].blocked_by
    await pools.execute_update(NodePoolWorkflow.resume, Resume(by="ops@example.com"))
    await in_time(skipping, lambda: granted(fake, "a"))


async def test_a_pause_by_signal_is_taken_back_by_signal(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await pools.signal(NodePoolWorkflow.pause_disruption, await pause_for(skipping, hours=1))
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    await pools.signal(NodePoolWorkflow.resume_disruption, Resume())
    await in_time(skipping, lambda: granted(fake, "a"))


async def test_a_pause_that_is_over_already_is_refused(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await pool(fake)
    with pytest.raises(WorkflowUpdateFailedError) as refusal:
        await pools.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, minutes=-1))
    assert "write a moment to come" in str(refusal.value.__cause__)


async def test_the_status_is_written_when_the_pool_changes_and_never_for_nothing(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake)
    await eventually(lambda: shown(fake, nodes=2))
    assert fake.pools.statuses["default"]["NodeClassReady"] == "True"
    assert fake.pools.statuses["default"]["ValidationSucceeded"] == "True"
    await standing(fake, "c")
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, usage="more"))
    await eventually(lambda: shown(fake, nodes=3))
    await skipping.sleep(timedelta(minutes=1))
    before = len((await pools.fetch_history()).events)
    await skipping.sleep(timedelta(hours=1))
    assert len((await pools.fetch_history()).events) == before


async def test_older_observations_of_a_pool_are_dropped(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await pool(fake)
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=9, generation=2))
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=3, exists=False))
    await skipping.sleep(timedelta(seconds=10))
    await eventually(lambda: shown(fake, nodes=0))
    assert (await pools.query(NodePoolWorkflow.state)).seen == PoolSeen(number=9, generation=2)


async def test_a_status_that_the_api_server_refuses_stops_no_permit(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a")
    fake.pools.faults["patch_status"] = [BadInput("status.resources: Invalid value")]
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: granted(fake, "a"))


async def test_a_budget_that_cannot_be_read_closes_the_pool_and_says_so(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a")
    fake.nodes.faults["list"] = [BadInput("unknown field selector")]
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    assert "the budget could not be read" in (await answers(fake, "a"))[0].blocked_by
    await in_time(skipping, lambda: granted(fake, "a"), seconds=10)


async def test_a_wish_of_a_node_that_is_gone_is_forgotten(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a", "b")
    await fake.client.get_workflow_handle("a").terminate()
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, pools, "a", "b")
    await in_time(skipping, lambda: granted(fake, "b"))
    assert [one.claim_name for one in (await pools.query(NodePoolWorkflow.state)).permits] == ["b"]


async def test_the_workflow_ends_with_its_pool(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await pool(fake)
    fake.pools.found.clear()
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, exists=False))
    await pools.result()
    assert await scheduled(pools, "update_pool") <= 1


async def test_wishes_permits_and_pauses_outlive_continuing_as_new(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 60)
    await standing(fake, "a", "b")
    first = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, first, "a", "b")
    await in_time(skipping, lambda: refused(fake, "b"))
    for number in range(2, 20):
        await idle(first, patience=SHORTLY)
        await first.signal(NodePoolWorkflow.seen, PoolSeen(number=number, generation=number))
    await in_time(skipping, lambda: rolled(fake.client, first))
    following: WorkflowHandle[NodePoolWorkflow, None] = fake.client.get_workflow_handle(first.id)
    state = await following.query(NodePoolWorkflow.state)
    assert [one.claim_name for one in state.permits] == ["a"] and [one.claim_name for one in state.asked] == ["b"]
    assert len(await answers(fake, "b")) == 1


async def told(fake: World, name: str, times: int) -> bool:
    return len(await answers(fake, name)) == times


async def shown(fake: World, *, nodes: int) -> bool:
    return fake.pools.statuses.get("default", {}).get("nodes") == nodes
