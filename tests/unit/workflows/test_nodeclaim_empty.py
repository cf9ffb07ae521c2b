"""An empty node goes by a permit of its pool, or says why it stays."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim_state import Phase
from tenure.model.signals import Pause, Resume
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, eventually, in_time, own_events, state_of, tasks_done
from tests.support.workflows.lives import BUSY, emptied, pause_for, pool, ready
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow


async def test_an_empty_node_goes_when_its_time_and_permit_have_come(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    began = await skipping.get_current_time()
    await emptied(fake, skipping, handle)
    outcome = await handle.result()
    assert outcome.reason == "Empty"
    assert outcome.story[-1].at - began >= timedelta(seconds=30)
    assert fake.instances.running == {} and fake.claims.found == {}


async def test_a_life_that_ends_by_a_permit_costs_at_most_100_events(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    await emptied(fake, skipping, handle)
    await handle.result()
    own = await own_events(handle)
    assert len(own) <= 45, own
    assert await tasks_done(handle) <= 22


async def test_a_refused_permit_names_the_budget_on_node_and_pool(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    pools = await pool(fake, budgets=[{"nodes": "0"}])
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "budget 0 of 1 nodes allows 0"), seconds=10)
    assert "budget 0" in (await pools.query(NodePoolWorkflow.state)).blocked_by
    assert fake.instances.terminated == []


async def test_a_node_whose_pool_has_no_workflow_yet_says_so_and_goes_later(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "no workflow yet"), seconds=10)
    await pool(fake)
    assert (await handle.result()).reason == "Empty"


async def test_a_pod_that_the_watch_has_not_seen_yet_keeps_the_node(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    pools = await pool(fake)
    fake.pods.place("node-a", "web")
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "not empty: default/web"), seconds=10)
    await eventually(lambda: no_permits(pools))
    assert all(key != "karpenter.sh/disrupted" for key, _, _ in fake.nodes.found["node-a"].taints)
    fake.pods.by_node.clear()
    assert (await handle.result()).reason == "Empty"
    assert len(fake.instances.terminated) == 1


async def no_permits(pools: Any) -> bool:
    return bool((await pools.query(NodePoolWorkflow.state)).permits == ())


async def test_a_node_that_is_used_again_takes_its_wish_back(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    pools = await pool(fake, budgets=[{"nodes": "0"}])
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: wishes(pools, 1), seconds=10)
    await fake.see(handle, **BUSY, policy="WhenEmpty/30s")
    await eventually(lambda: wishes(pools, 0))
    assert (await state_of(handle)).blocked_by == ""


async def test_pods_that_come_and_go_start_the_wait_again(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    for _ in range(6):
        await emptied(fake, skipping, handle)
        await skipping.sleep(timedelta(seconds=10))
        await fake.see(handle, **BUSY, policy="WhenEmpty/30s")
    assert (await state_of(handle)).phase is Phase.READY
    await emptied(fake, skipping, handle)
    assert (await handle.result()).reason == "Empty"


async def test_a_paused_node_stays_until_the_pause_ends(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    pause = await pause_for(skipping, hours=3)
    verdict = await handle.execute_update(NodeClaimWorkflow.pause, pause)
    assert verdict.accepted
    await emptied(fake, skipping, handle)
    await skipping.sleep(timedelta(hours=2))
    assert await blocked(handle, "the node is paused by ops@example.com until")
    outcome = await handle.result()
    assert outcome.reason == "Empty" and outcome.story[-1].at >= pause.until


async def test_a_pause_by_signal_is_taken_back_by_signal(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(skipping, hours=3))
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "paused by"), seconds=10)
    await handle.signal(NodeClaimWorkflow.resume_disruption, Resume(by="ops@example.com"))
    outcome = await handle.result()
    assert outcome.story[-1].at < (await skipping.get_current_time()) + timedelta(hours=3)
    assert outcome.reason == "Empty"


async def test_resuming_lets_a_paused_node_go(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    pause = await pause_for(skipping, hours=3)
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    await emptied(fake, skipping, handle)
    await handle.execute_update(NodeClaimWorkflow.resume, Resume())
    assert (await handle.result()).story[-1].at < pause.until


async def test_a_pause_that_is_over_already_is_refused_with_what_to_write(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(skipping, hours=-1))
    assert "is past; write a moment to come" in str(refused.value.__cause__)
    assert (await state_of(handle)).pause is None


async def test_a_pause_holds_back_neither_deletion_nor_expiry(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping, expireAfter="2h")
    pause: Pause = await pause_for(skipping, hours=24)
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    outcome = await handle.result()
    assert outcome.reason == "Expired" and outcome.story[-1].at < pause.until


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"policy": "WhenEmpty/Never"}, ""),
        ({"policy": ""}, "no NodePool"),
        ({"policy": "WhenEmpty/30s", "do_not_disrupt": True}, "do-not-disrupt"),
    ],
)
async def test_an_empty_node_that_is_to_stay_costs_nothing_and_says_why(
    fake: World, skipping: WorkflowEnvironment, seen: dict[str, Any], why: str
) -> None:
    handle = await ready(fake, skipping)
    await fake.see(handle, **BUSY, empty=True, empty_since=await skipping.get_current_time(), **seen)
    await skipping.sleep(timedelta(minutes=1))
    before = len((await handle.fetch_history()).events)
    await skipping.sleep(timedelta(hours=5))
    assert len((await handle.fetch_history()).events) == before
    assert await blocked(handle, why)


async def wishes(pools: Any, count: int) -> bool:
    return len((await pools.query(NodePoolWorkflow.state)).asked) == count


async def test_the_time_of_an_empty_node_runs_on_when_a_watch_begins_that_did_not_see_it_empty(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    await emptied(fake, skipping, handle, policy="WhenEmpty/1h")
    since = (await state_of(handle)).seen.empty_since
    assert since is not None
    await skipping.sleep(timedelta(minutes=50))
    now = await skipping.get_current_time()
    unseen = {"empty": True, "empty_since": now, "empty_since_unseen": True, "policy": "WhenEmpty/1h"}
    await fake.see(handle, **BUSY, **unseen)
    story = (await handle.result()).story
    drained = next(step.at for step in story if step.phase is Phase.DRAIN)
    assert timedelta(hours=1) <= drained - since < timedelta(minutes=70)
