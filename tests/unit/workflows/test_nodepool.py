"""NodePool: permits within the budget, expired permits, pauses, and status updates."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

import workflows.activity_options
from tenure.apis import labels
from tenure.model.disruption.commands import PermitRevoked
from tenure.model.errors import BadInput, Fault, TryLater
from tenure.model.observations import ObservedNodePool
from tenure.model.signals import PermitRelease, PermitRequest, PermitResult
from tests.support.fakes.permit_requester import PermitRequesterWorkflow
from tests.support.fakes.worker import IDLE_TIMEOUT_SECONDS, WorkerHarness
from tests.support.workflows.eventually import (
    count_scheduled,
    has_continued_as_new,
    is_running,
    wait_until,
    wait_until_idle,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import start_nodepool
from workflows import ids
from workflows.nodepool import NodePoolWorkflow

Asker = WorkflowHandle[PermitRequesterWorkflow, None]


async def add_nodeclaims(fake: WorkerHarness, *names: str) -> None:
    """Initialized NodeClaims with Ready Nodes, and fake workflows that record the signals that they receive."""
    for name in names:
        fake.claims.add(name)
        fake.nodes.join(f"node-{name}", f"aws:///us-west-2a/i-{name}", labels={labels.NODEPOOL: "default"})
        fake.claims.set_status(name, provider_id=f"aws:///us-west-2a/i-{name}", Initialized="True")
        await fake.client.start_workflow(PermitRequesterWorkflow.run, id=name, task_queue=ids.task_queue(fake.cluster))


async def request_permits(fake: WorkerHarness, pools: Any, *names: str) -> None:
    """Request permits in this order: each node is empty one second later than the previous one."""
    now = await fake.now()
    for second, name in enumerate(names):
        since = now - timedelta(minutes=1) + timedelta(seconds=second)
        request = PermitRequest(claim_name=name, claim_uid=f"uid-{name}", workflow_id=name, reason="Empty", since=since)
        await pools.signal(NodePoolWorkflow.request_permit, request)


async def request_command_permit(fake: WorkerHarness, pools: Any) -> None:
    """For node `a`, which the command taints within six minutes."""
    request = PermitRequest(
        claim_name="a", claim_uid="uid-a", workflow_id="a", reason="Empty", since=await fake.now(),
        begins_within=timedelta(minutes=6),
    )  # fmt: skip
    await pools.signal(NodePoolWorkflow.request_permit, request)


async def start_with_requests(fake: WorkerHarness, *names: str, nodes: str = "1") -> Any:
    """The NodePool with a budget of `nodes`, and requests for its NodeClaims in this order."""
    await add_nodeclaims(fake, *sorted(set(names)))
    pools = await start_nodepool(fake, budgets=[{"nodes": nodes}])
    await request_permits(fake, pools, *names)
    return pools


async def permit_decisions(fake: WorkerHarness, name: str) -> list[PermitResult]:
    asker: Asker = fake.client.get_workflow_handle_for(PermitRequesterWorkflow.run, name)
    return await asker.query(PermitRequesterWorkflow.decisions)


async def have_permits(fake: WorkerHarness, *names: str) -> bool:
    return all([any(one.granted for one in await permit_decisions(fake, name)) for name in names])


async def have_rejections(fake: WorkerHarness, *names: str) -> bool:
    return all([any(not one.granted for one in await permit_decisions(fake, name)) for name in names])


async def test_budget_grants_longest_empty_nodes_and_rejects_others_with_reason(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b", "c", "d", "e")
    pools = await start_nodepool(fake, budgets=[{"nodes": "2"}])
    await request_permits(fake, pools, "c", "a", "e", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "c", "a"))
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "e", "b"))
    decision = (await permit_decisions(fake, "e"))[0]
    assert "budget 2 of 5 nodes allows 2, 0 in use" in decision.blocked_by
    assert not await have_permits(fake, "e") and not await have_permits(fake, "b")
    assert [one.claim_name for one in (await pools.query(NodePoolWorkflow.state)).permits] == ["c", "a"]


async def test_unused_permit_expires_and_next_request_is_granted(fake: WorkerHarness) -> None:
    await start_with_requests(fake, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    (permit,) = await permit_decisions(fake, "a")
    assert permit.until
    await fake.sleep(permit.until - await fake.now() - timedelta(seconds=10))
    assert not await have_permits(fake, "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"), seconds=10)


async def test_command_permit_counts_until_latest_start_or_release(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b", "c")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_command_permit(fake, pools)
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await request_permits(fake, pools, "b", "c")
    await fake.sleep(minutes=7)
    assert not await have_permits(fake, "b"), "the command may still taint the node"
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"), seconds=10)
    await pools.signal(NodePoolWorkflow.revoke_permits, PermitRevoked(claim_uid="uid-b", why="it is paused"))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "c"))


async def test_revoked_command_permit_counts_until_release(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_command_permit(fake, pools)
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await pools.signal(NodePoolWorkflow.revoke_permits, PermitRevoked(claim_uid="uid-a", why="it is paused"))
    await request_permits(fake, pools, "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    asker: Asker = fake.client.get_workflow_handle_for(PermitRequesterWorkflow.run, "a")
    assert [one.why for one in await asker.query(PermitRequesterWorkflow.revocations)] == ["it is paused"]
    await pools.signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid="uid-a", workflow_id="a"))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"))


async def test_released_permit_is_granted_to_next_request_at_once(fake: WorkerHarness) -> None:
    pools = await start_with_requests(fake, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await pools.signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid="uid-a"))
    await fake.sleep(seconds=1)
    await wait_until(lambda: have_permits(fake, "b"))


async def test_removed_node_frees_budget_with_next_observation(fake: WorkerHarness) -> None:
    pools = await start_with_requests(fake, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    del fake.claims.found["a"]
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, usage="less"))
    await fake.sleep(seconds=1)
    await wait_until(lambda: have_permits(fake, "b"))


async def test_withdrawn_request_is_not_granted(fake: WorkerHarness) -> None:
    pools = await start_with_requests(fake, "a", "b", nodes="0")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a", "b"))
    await pools.signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid="uid-a"))
    fake.pools.add("default", disruption={"budgets": [{"nodes": "2"}]})
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=2))
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"))
    assert not await have_permits(fake, "a")


async def test_repeated_requests_get_one_permit(fake: WorkerHarness) -> None:
    pools = await start_with_requests(fake, "a", "a", "b", "a", nodes="2")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a", "b"))
    permits = (await pools.query(NodePoolWorkflow.state)).permits
    assert sorted(one.claim_name for one in permits) == ["a", "b"]


async def test_rejection_is_sent_once_per_request(fake: WorkerHarness) -> None:
    pools = await start_with_requests(fake, "a", nodes="0")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"))
    await fake.sleep(minutes=5)
    assert len(await permit_decisions(fake, "a")) == 1
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: has_decision_count(fake, "a", 2))


async def test_status_is_written_only_after_changes(fake: WorkerHarness) -> None:
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


async def test_older_nodepool_observations_are_ignored(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=9, generation=2))
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=3, exists=False))
    await fake.sleep(seconds=10)
    await wait_until(lambda: status_has_nodes(fake, nodes=0))
    assert (await pools.query(NodePoolWorkflow.state)).observed == ObservedNodePool(number=9, generation=2)


async def test_rejected_status_update_does_not_block_permits_and_is_repeated(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    fake.pools.faults["patch_status"] = [BadInput("status.resources: Invalid value")] * 3
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    await fake.sleep(minutes=5)
    assert await count_scheduled(pools, "update_nodepool_status") == 1
    await fake.sleep(hours=1)
    await wait_until(lambda: status_has_nodes(fake, nodes=1))
    assert await count_scheduled(pools, "update_nodepool_status") == 4


async def test_failing_status_update_does_not_block_permits_and_is_repeated(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    fake.pools.faults["patch_status"] = [TryLater("503")] * 10_000
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"), seconds=20)
    fake.pools.faults.clear()
    await wait_until_skipping_time(fake, lambda: status_has_nodes(fake, nodes=1), seconds=20)


@pytest.mark.parametrize(
    "faults", [[BadInput("unknown field selector")], [TryLater("503")] * 10_000], ids=["rejected", "no response"]
)
async def test_unreadable_budget_rejects_requests_with_reason(fake: WorkerHarness, faults: list[Fault | None]) -> None:
    await add_nodeclaims(fake, "a")
    fake.nodes.faults["list"] = [*faults]
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "a"), seconds=20)
    assert "the budget could not be read" in (await permit_decisions(fake, "a"))[0].blocked_by
    fake.nodes.faults.clear()
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"), seconds=10)


async def test_request_of_removed_node_is_dropped(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b")
    await fake.client.get_workflow_handle("a").terminate()
    pools = await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await request_permits(fake, pools, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"))
    assert [one.claim_name for one in (await pools.query(NodePoolWorkflow.state)).permits] == ["b"]


async def test_workflow_ends_with_its_nodepool(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    fake.pools.found.clear()
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, exists=False))
    await pools.result()
    assert await count_scheduled(pools, "update_nodepool_status") <= 1


async def test_permits_and_pending_requests_survive_continue_as_new(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 60)
    first = await start_with_requests(fake, "a", "b")
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


async def test_renewed_permit_before_continue_as_new_is_confirmed(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await start_with_requests(fake, "a", "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    gate, read_nodes = asyncio.Event(), fake.nodes.list

    async def read_slowly(**selector: Any) -> Any:
        await gate.wait()
        return await read_nodes(**selector)

    monkeypatch.setattr(fake.nodes, "list", read_slowly)
    await first.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=2))
    await wait_until_skipping_time(fake, lambda: is_running(first, "read_allowed_disruptions"), milliseconds=250)
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 1)
    await request_permits(fake, first, "a")
    assert await first.query(NodePoolWorkflow.state)
    gate.set()
    await wait_until(lambda: has_continued_as_new(fake.client, first))
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 500)
    await wait_until(lambda: has_decision_count(fake, "a", 2))


async def has_decision_count(fake: WorkerHarness, name: str, times: int) -> bool:
    return len(await permit_decisions(fake, name)) == times


async def status_has_nodes(fake: WorkerHarness, *, nodes: int) -> bool:
    return fake.pools.statuses.get("default", {}).get("nodes") == nodes
