"""The roll-out as a NodePool's workflow performs it: looks, gates, people, the way back; idle it costs nothing."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.model.observations import PoolSeen, StartEnded
from tenure.model.rollout import ApproveRollout, GateAnswer, Image, RejectRollout, RolloutState, Target
from tenure.model.signals import Verdict
from tests.support.fakes.rolling import Rolling, RollingPool, rolling
from tests.support.fakes.rolling_workflow import RollingWorkflow
from tests.support.workflows.eventually import eventually, in_time, rolled, scheduled

GOOD = Target(pool="p", node_class="default", images=(Image(id="ami-good"),))
BAD = GOOD.model_copy(update={"images": (Image(id="ami-bad"),)})
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
NODES = tuple(f"n{number}" for number in range(10))
WAVES = {"waves": [{"nodes": "1", "soak": "10m"}, {}]}
GATE = {"queries": [{"name": "errors", "query": "sum(errors)", "below": "1"}]}


def seen(**rules: Any) -> PoolSeen:
    return PoolSeen(number=1, rollout=RolloutRules.model_validate(rules))


async def started(skipping: WorkflowEnvironment, **rules: Any) -> AsyncIterator[Rolling]:
    """A pool that ran well with GOOD, and whose ten nodes have drifted towards BAD."""
    pool = RollingPool()
    pool.see(target=GOOD, new=10, ready=10)
    async with rolling(skipping.client, seen(**rules), pool) as found:
        await eventually(lambda: _finished(found))
        pool.see(target=BAD, drifted=NODES, new=0, ready=0)
        yield found


async def _finished(found: Rolling) -> bool:
    return (await found.state()).rollout.finished


@pytest.fixture
async def waved(skipping: WorkflowEnvironment) -> AsyncIterator[Rolling]:
    async for one in started(skipping, **WAVES, onFailure="rollBack"):
        yield one


@pytest.fixture
async def approved(skipping: WorkflowEnvironment) -> AsyncIterator[Rolling]:
    async for one in started(skipping, **WAVES, approval={"required": True}):
        yield one


@pytest.fixture
async def gated(skipping: WorkflowEnvironment) -> AsyncIterator[Rolling]:
    async for one in started(skipping, **WAVES, health=GATE):
        yield one


async def test_a_pool_that_is_well_costs_no_event(waved: Rolling, skipping: WorkflowEnvironment) -> None:
    await skipping.sleep(timedelta(minutes=1))
    before = len((await waved.handle.fetch_history()).events)
    await skipping.sleep(timedelta(days=2))
    assert len((await waved.handle.fetch_history()).events) == before
    assert waved.pool.looks == 1


async def test_waves_let_some_go_and_the_rest_after_the_soak(waved: Rolling, skipping: WorkflowEnvironment) -> None:
    await waved.wish(*NODES[:5], since=LONG_AGO)
    await eventually(lambda: waved.has_permits(1))
    waved.pool.go("n0")
    await in_time(skipping, lambda: waved.says("is watched until"), seconds=20)
    assert await waved.has_permits(1)
    await in_time(skipping, lambda: waved.has_permits(4), seconds=20)
    assert waved.pool.events()[:3] == ["RolloutBegan", "RolloutWaveSoaks", "RolloutWaveDone"]
    waved.pool.go(*NODES)
    waved.pool.see(new=10, ready=10)
    await in_time(skipping, lambda: _finished(waved), seconds=20)
    assert (await waved.state()).rollout.good == BAD


async def test_the_soak_is_watched_once_a_minute(waved: Rolling, skipping: WorkflowEnvironment) -> None:
    await waved.wish("n0", since=LONG_AGO)
    await eventually(lambda: waved.has_permits(1))
    waved.pool.go("n0")
    await in_time(skipping, lambda: waved.says("is watched until"), seconds=20)
    before = await scheduled(waved.handle, "look_at_rollout")
    await skipping.sleep(timedelta(minutes=5))
    assert await scheduled(waved.handle, "look_at_rollout") - before in (4, 5)


async def test_a_canary_that_sickens_is_rolled_back_within_two_minutes(
    waved: Rolling, skipping: WorkflowEnvironment
) -> None:
    await waved.wish(*NODES[:3], since=LONG_AGO)
    await eventually(lambda: waved.has_permits(1))
    waved.pool.go("n0")
    await in_time(skipping, lambda: waved.says("is watched until"), seconds=20)
    waved.pool.see(ready=0)
    await skipping.sleep(timedelta(minutes=3, seconds=30))
    (asked, *_) = waved.pool.pinned
    assert (asked.node_class, asked.images, asked.by) == (
        "default",
        {"ami-bad": "ami-good"},
        "the health of the roll-out",
    )
    assert "0 of 1 new nodes are Ready" in asked.why
    assert await waved.has_permits(1), "no further node went"
    waved.pool.see(target=GOOD, drifted=("bad",), new=9, ready=9)
    await in_time(skipping, lambda: _finished(waved), seconds=20)
    assert "RolloutRollsBack" in waved.pool.events()


async def fail_to_start(one: Rolling, now: datetime, *uids: str) -> None:
    for uid in uids:
        ended = StartEnded(uid=uid, at=now, reason="RegistrationTimeout")
        await one.handle.signal(RollingWorkflow.start_failed, ended)


async def test_nodes_that_never_come_up_halt_it_until_a_person_says_to_go_on(
    approved: Rolling, skipping: WorkflowEnvironment
) -> None:
    await fail_to_start(approved, LONG_AGO, "x", "y")
    await approved.wish(*NODES[:3], since=LONG_AGO)
    await in_time(skipping, lambda: approved.says("tenure approve web-"), seconds=20)
    await approve(approved, await plan_of(approved))
    await in_time(skipping, lambda: approved.has_permits(1), seconds=20)
    await skipping.sleep(timedelta(minutes=3, seconds=10))
    assert not await approved.says("halted"), "what failed before it began is nothing of it"
    await fail_to_start(approved, await skipping.get_current_time(), "v", "w")
    await in_time(skipping, lambda: approved.says("2 new NodeClaims did not come to be nodes"), seconds=20)
    await in_time(skipping, lambda: approved.says("is halted since"), seconds=20)
    await approve(approved, await plan_of(approved))
    await skipping.sleep(timedelta(minutes=5))
    assert not await approved.says("halted"), "what failed before a person said to go on"


async def test_gates_are_asked_and_what_they_say_holds(gated: Rolling, skipping: WorkflowEnvironment) -> None:
    gated.pool.answer = GateAnswer(outcome="failed", value=3, why="errors: 3 is not below 1")
    await gated.wish(*NODES[:3], since=LONG_AGO)
    await in_time(skipping, lambda: gated.says("is held: errors: 3 is not below 1"), seconds=20)
    assert await gated.has_permits(0)
    assert "errors: 3 is not below 1" in (await gated.state()).blocked_by
    gated.pool.answer = GateAnswer(outcome="passed", value=0)
    await in_time(skipping, lambda: gated.has_permits(1), seconds=20)


async def approve(one: Rolling, plan: str, by: str = "ann") -> Verdict:
    return await one.handle.execute_update(RollingWorkflow.approve, ApproveRollout(plan=plan, by=by))


async def plan_of(one: Rolling) -> str:
    state = (await one.state()).rollout
    return state.halted.plan if state.halted else state.plan.id if state.plan else ""


async def test_a_plan_waits_for_its_approval(approved: Rolling, skipping: WorkflowEnvironment) -> None:
    await approved.wish(*NODES[:3], since=LONG_AGO)
    await in_time(skipping, lambda: approved.says("tenure approve web-"), seconds=20)
    assert await approved.has_permits(0)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await approve(approved, "web-000000")
    assert "is stale or was never there" in str(refused.value.cause)
    verdict = await approve(approved, await plan_of(approved))
    assert verdict.accepted
    await in_time(skipping, lambda: approved.has_permits(1), seconds=20)
    await eventually(lambda: approved.told("RolloutApproved"))


async def test_an_approval_outlives_the_worker_and_the_run(approved: Rolling, skipping: WorkflowEnvironment) -> None:
    await approved.wish("n0", since=LONG_AGO)
    await in_time(skipping, lambda: approved.says("tenure approve web-"), seconds=20)
    plan = await plan_of(approved)
    await approve(approved, plan)
    await approved.handle.signal(RollingWorkflow.roll)
    await eventually(lambda: rolled(skipping.client, approved.handle))
    again = Rolling(approved.pool, skipping.client.get_workflow_handle_for(RollingWorkflow.run, approved.handle.id))
    await in_time(skipping, lambda: again.has_permits(1), seconds=20)
    assert await plan_of(again) == plan


async def test_a_rejected_plan_stops_the_roll_out(approved: Rolling, skipping: WorkflowEnvironment) -> None:
    await approved.wish("n0", since=LONG_AGO)
    await in_time(skipping, lambda: approved.says("tenure approve web-"), seconds=20)
    said = RejectRollout(plan=await plan_of(approved), by="ben", reason="not before Monday")
    await approved.handle.execute_update(RollingWorkflow.reject, said)
    await in_time(skipping, lambda: approved.says("is rejected by ben"), seconds=20)
    await skipping.sleep(timedelta(days=2))
    assert await approved.has_permits(0)


async def test_a_signal_that_is_refused_is_told_as_an_event(approved: Rolling, skipping: WorkflowEnvironment) -> None:
    await approved.wish("n0", since=LONG_AGO)
    await in_time(skipping, lambda: approved.says("tenure approve web-"), seconds=20)
    await approved.handle.signal(RollingWorkflow.approve_rollout, ApproveRollout(plan="web-1", by="ann"))
    await in_time(skipping, lambda: approved.told("RolloutRefused"), seconds=20)


async def test_what_goes_on_stands_on_the_node_pool_too(waved: Rolling, skipping: WorkflowEnvironment) -> None:
    await waved.wish("n0", since=LONG_AGO)
    await eventually(lambda: waved.has_permits(1))
    kept = RolloutState.model_validate_json(waved.pool.told[-1].kept)
    assert (kept.target, kept.good) == (BAD, GOOD)


async def test_a_look_that_fails_lets_no_node_go_and_is_repeated(waved: Rolling, skipping: WorkflowEnvironment) -> None:
    waved.pool.blind = True
    await waved.wish("n0", since=LONG_AGO)
    await in_time(skipping, lambda: waved.says("could not be looked at: the API server is away"), seconds=5)
    assert await waved.has_permits(0)
    waved.pool.blind = False
    await in_time(skipping, lambda: waved.has_permits(1), seconds=20)


async def test_rules_that_are_taken_away_end_it(waved: Rolling, skipping: WorkflowEnvironment) -> None:
    await waved.wish(*NODES[:5], since=LONG_AGO)
    await eventually(lambda: waved.has_permits(1))
    await waved.handle.signal(RollingWorkflow.seen, PoolSeen(number=2))
    await in_time(skipping, lambda: waved.has_permits(5), seconds=20)
    assert (await waved.state()).rollout == RolloutState()
    assert waved.pool.told[-1].kept == ""
    await waved.handle.signal(RollingWorkflow.seen, seen(**WAVES, onFailure="rollBack"))
    await in_time(skipping, lambda: _wave_began(waved), seconds=5)


async def test_rules_removed_during_a_look_are_followed_when_they_return(
    waved: Rolling, skipping: WorkflowEnvironment
) -> None:
    changed = seen(**WAVES, onFailure="rollBack").model_copy(update={"generation": 2})
    await waved.wish("n0", since=LONG_AGO)
    await eventually(lambda: waved.has_permits(1))
    before, waved.pool.held = waved.pool.looks, asyncio.Event()
    await waved.handle.signal(RollingWorkflow.seen, changed)
    await eventually(lambda: _looks(waved, before + 1))
    await waved.handle.signal(RollingWorkflow.seen, PoolSeen(number=2))
    waved.pool.held.set()
    await eventually(lambda: _has_no_rollout(waved))
    await waved.handle.signal(RollingWorkflow.seen, changed)
    await in_time(skipping, lambda: _wave_began(waved), seconds=5)


async def _has_no_rollout(one: Rolling) -> bool:
    return (await one.state()).rollout == RolloutState()


async def _looks(one: Rolling, number: int) -> bool:
    return one.pool.looks == number


async def test_another_node_of_a_pool_that_is_well_is_no_news_and_another_spec_is(
    waved: Rolling, skipping: WorkflowEnvironment
) -> None:
    known = (await waved.state()).seen
    await waved.handle.signal(RollingWorkflow.seen, known.model_copy(update={"usage": "11 nodes"}))
    await skipping.sleep(timedelta(minutes=1))
    assert waved.pool.looks == 1
    await waved.handle.signal(RollingWorkflow.seen, known.model_copy(update={"generation": 2}))
    await in_time(skipping, lambda: _wave_began(waved), seconds=5)


async def _wave_began(one: Rolling) -> bool:
    return (await one.state()).rollout.wave_began is not None
