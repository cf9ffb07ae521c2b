"""NodePool: permits within the budget, leases that lapse, pauses, and a status that is kept."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

import workflows.activity_options
from tenure.model.disruption.commands import PermitRevoked
from tenure.model.errors import BadInput
from tenure.model.observations import ObservedNodePool
from tenure.model.signals import PermitRelease, PermitRequest, PermitResult, Resume
from tests.support.fakes.permit_requester import PermitRequesterWorkflow
from tests.support.fakes.worker import IDLE_TIMEOUT_SECONDS, WorkerHarness
from tests.support.workflows.eventually import (
    count_scheduled,
    has_continued_as_new,
    wait_until,
    wait_until_idle,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import pause_for, start_nodepool
from workflows import ids
from workflows.nodepool import NodePoolWorkflow

Asker = WorkflowHandle[PermitRequesterWorkflow, None]


async def add_nodeclaims(fake: WorkerHarness, *names: str) -> None:
    """Initialized NodeClaims of the pool, and in the place of their workflows some that note what they are told."""
    for name in names:
        fake.claims.add(name)
        fake.claims.set_status(name, provider_id=f"aws:///us-west-2a/i-{name}", Initialized="True")
        await fake.client.start_workflow(PermitRequesterWorkflow.run, id=name, task_queue=ids.task_queue(fake.cluster))


async def request_permits(fake: WorkerHarness, pools: Any, *names: str) -> None:
    """Wishes in this order: each node is empty since a second later than the one before."""
    now = await fake.now()
    for second, name in enumerate(names):
        since = now - timedelta(minutes=1) + timedelta(seconds=second)
        request = PermitRequest(claim_name=name, claim_uid=f"uid-{name}", workflow_id=name, reason="Empty", since=since)
        await pools.signal(NodePoolWorkflow.request_permit, request)


async def permit_decisions(fake: WorkerHarness, name: str) -> list[PermitResult]:
    asker: Asker = fake.client.get_workflow_handle_for(PermitRequesterWorkflow.run, name)
    return await asker.query(PermitRequesterWorkflow.decisions)


async def have_permits(fake: WorkerHarness, *names: str) -> bool:
    return all([any(one.granted for one in await permit_decisions(fake, name)) for name in names])


async def have_rejections(fake: WorkerHarness, *names: str) -> bool:
    return all([any(not one.granted for one in await permit_decisions(fake, name)) for name in names])


async def test_a_budget_lets_the_longest_empty_go_and_tells_the_others_why(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b", "c", "d", "e")
    pools = await start_nodepool(fake, budgets=[{"nodes": "2"}])
    await request_permits(fake, pools, "c", "a", "e", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "c", "a"))
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "e", "b"))
    decision = (await permit_decisions(fake, "e"))[0]
    assert "budget 2 of 5 nodes allows 2, 0 in use" in decision.blocked_by
    assert not await have_permits(fake, "e") and not await have_permits(fake, "b")
    assert [one.claim_name for one in (await pools.query(NodePoolWorkflow.state)).permits] == ["c", "a"]


async def test_nodes_that_go_or_are_not_ready_use_the_budget_up(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b", "c")
    fake.claims.set_status("b", deleting=True)
    fake.nodes.join("node-c", "aws:///us-west-2a/i-c", ready=False, labels={"karpenter.sh/nodepool": "default"})
    pools = await start_nodepool(fake, budgets=[{"nodes": "2"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    assert "2 in use" in (await permit_decisions(fake, "a"))[0].blocked_by


async def test_a_permit_that_is_not_used_lapses_and_serves_the_next(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    (permit,) = await permit_decisions(fake, "a")
    assert permit.until
    await fake.sleep(permit.until - await fake.now() - timedelta(seconds=10))
    assert not await have_permits(fake, "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"), seconds=10)


async def test_a_permit_of_a_command_counts_until_it_cannot_begin_any_more_or_is_given_back(
    fake: WorkerHarness,
) -> None:
    await add_nodeclaims(fake, "a", "b", "c")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    now = await fake.now()
    request = PermitRequest(claim_name="a", claim_uid="uid-a", workflow_id="a", reason="Empty", since=now)
    await pools.signal(
        NodePoolWorkflow.request_permit, request.model_copy(update={"begins_within": timedelta(minutes=6)})
    )
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await request_permits(fake, pools, "b", "c")
    await fake.sleep(minutes=7)
    assert not await have_permits(fake, "b"), "its taint may come only now"
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"), seconds=10)
    await pools.signal(NodePoolWorkflow.revoke_permits, PermitRevoked(claim_uid="uid-b", why="it is paused"))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "c"))


async def test_a_permit_that_is_called_back_from_a_command_counts_until_it_has_put_its_nodes_back(
    fake: WorkerHarness,
) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    now = await fake.now()
    request = PermitRequest(claim_name="a", claim_uid="uid-a", workflow_id="a", reason="Empty", since=now)
    await pools.signal(
        NodePoolWorkflow.request_permit, request.model_copy(update={"begins_within": timedelta(minutes=6)})
    )
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await pools.signal(NodePoolWorkflow.revoke_permits, PermitRevoked(claim_uid="uid-a", why="it is paused"))
    await request_permits(fake, pools, "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    asker: Asker = fake.client.get_workflow_handle_for(PermitRequesterWorkflow.run, "a")
    assert [one.why for one in await asker.query(PermitRequesterWorkflow.revocations)] == ["it is paused"]
    await pools.signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid="uid-a", workflow_id="a"))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"))


async def test_a_permit_that_is_given_back_serves_the_next_at_once(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await pools.signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid="uid-a"))
    await fake.sleep(seconds=1)
    await wait_until(lambda: have_permits(fake, "b"))


async def test_a_node_that_is_gone_frees_the_budget_as_soon_as_the_pool_changes(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    del fake.claims.found["a"]
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, usage="less"))
    await fake.sleep(seconds=1)
    await wait_until(lambda: have_permits(fake, "b"))


async def test_a_wish_taken_back_is_not_granted(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await request_permits(fake, pools, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a", "b"))
    await pools.signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid="uid-a"))
    fake.pools.add("default", disruption={"budgets": [{"nodes": "2"}]})
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=2))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"))
    assert not await have_permits(fake, "a")


async def test_a_wish_that_is_said_twice_is_one_wish(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "2"}])
    await request_permits(fake, pools, "a", "a", "b", "a")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a", "b"))
    permits = (await pools.query(NodePoolWorkflow.state)).permits
    assert sorted(one.claim_name for one in permits) == ["a", "b"]


async def test_a_refusal_is_told_once_and_again_only_to_one_that_asks_again(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    pools = await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    await fake.sleep(minutes=5)
    assert len(await permit_decisions(fake, "a")) == 1
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: has_decision_count(fake, "a", 2))


async def test_a_paused_pool_refuses_with_who_paused_it_until_it_is_resumed(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await pools.execute_update(NodePoolWorkflow.pause, await pause_for(fake, hours=1))
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    assert "paused by ops@example.com" in (await permit_decisions(fake, "a"))[0].blocked_by
    await pools.execute_update(NodePoolWorkflow.resume, Resume(by="ops@example.com"))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))


async def test_a_pause_by_signal_is_taken_back_by_signal(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await pools.signal(NodePoolWorkflow.pause_disruption, await pause_for(fake, hours=1))
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    await pools.signal(NodePoolWorkflow.resume_disruption, Resume())
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))


async def test_the_status_is_written_when_the_pool_changes_and_never_for_nothing(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake)
    await wait_until(lambda: status_has_nodes(fake, nodes=2))
    assert fake.pools.statuses["default"]["NodeClassReady"] == "True"
    assert fake.pools.statuses["default"]["ValidationSucceeded"] == "True"
    await add_nodeclaims(fake, "c")
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, usage="more"))
    await wait_until(lambda: status_has_nodes(fake, nodes=3))
    await fake.sleep(minutes=1)
    before = len((await pools.fetch_history()).events)
    await fake.sleep(hours=1)
    assert len((await pools.fetch_history()).events) == before


async def test_older_observations_of_a_pool_are_dropped(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=9, generation=2))
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=3, exists=False))
    await fake.sleep(seconds=10)
    await wait_until(lambda: status_has_nodes(fake, nodes=0))
    assert (await pools.query(NodePoolWorkflow.state)).observed == ObservedNodePool(number=9, generation=2)


async def test_a_status_that_the_api_server_refuses_stops_no_permit(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    fake.pools.faults["patch_status"] = [BadInput("status.resources: Invalid value")]
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))


async def test_a_budget_that_cannot_be_read_closes_the_pool_and_says_so(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    fake.nodes.faults["list"] = [BadInput("unknown field selector")]
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    assert "the budget could not be read" in (await permit_decisions(fake, "a"))[0].blocked_by
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"), seconds=10)


async def test_a_wish_of_a_node_that_is_gone_is_forgotten(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    await fake.client.get_workflow_handle("a").terminate()
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"))
    assert [one.claim_name for one in (await pools.query(NodePoolWorkflow.state)).permits] == ["b"]


async def test_the_workflow_ends_with_its_pool(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    fake.pools.found.clear()
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, exists=False))
    await pools.result()
    assert await count_scheduled(pools, "update_nodepool_status") <= 1


async def test_wishes_permits_and_pauses_outlive_continuing_as_new(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 60)
    await add_nodeclaims(fake, "a", "b")
    first = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, first, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    for number in range(2, 20):
        await wait_until_idle(first, timeout=IDLE_TIMEOUT_SECONDS)
        await first.signal(NodePoolWorkflow.observe, ObservedNodePool(number=number, generation=number))
    await wait_until_skipping_time(fake, lambda: has_continued_as_new(fake.client, first))
    following: WorkflowHandle[NodePoolWorkflow, None] = fake.client.get_workflow_handle(first.id)
    state = await following.query(NodePoolWorkflow.state)
    assert [one.claim_name for one in state.permits] == ["a"] and [
        one.claim_name for one in state.pending_requests
    ] == ["b"]
    assert len(await permit_decisions(fake, "b")) == 1


async def has_decision_count(fake: WorkerHarness, name: str, times: int) -> bool:
    return len(await permit_decisions(fake, name)) == times


async def status_has_nodes(fake: WorkerHarness, *, nodes: int) -> bool:
    return fake.pools.statuses.get("default", {}).get("nodes") == nodes
