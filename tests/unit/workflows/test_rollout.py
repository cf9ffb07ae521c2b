"""Rollout in a NodePool workflow: health checks, gates, approvals and rollback; an idle rollout adds no events."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.model.observations import ObservedNodePool, StartupOutcome
from tenure.model.rollout import ApproveRollout, GateResult, Image, RejectRollout, RolloutState, RolloutTarget
from tenure.model.signals import OperatorRequestResult
from tests.support.fakes.rollout import FakeRolloutActivities, RolloutHarness, rollout_harness
from tests.support.fakes.rollout_workflow import RolloutOnlyWorkflow
from tests.support.workflows.eventually import (
    count_scheduled,
    has_continued_as_new,
    wait_until,
    wait_until_skipping_time,
)

GOOD = RolloutTarget(pool="p", node_class="default", images=(Image(id="ami-good"),))
BAD = GOOD.model_copy(update={"images": (Image(id="ami-bad"),)})
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
NODES = tuple(f"n{number}" for number in range(10))
WAVES = {"waves": [{"nodes": "1", "soak": "10m"}, {}]}
GATE = {"queries": [{"name": "errors", "query": "sum(errors)", "below": "1"}]}


def observed_nodepool(**rules: Any) -> ObservedNodePool:
    return ObservedNodePool(number=1, rollout=RolloutRules.model_validate(rules))


async def drifted_rollout(skipping: WorkflowEnvironment, **rules: Any) -> AsyncIterator[RolloutHarness]:
    """A NodePool that finished GOOD, and whose ten nodes have drifted towards BAD."""
    pool = FakeRolloutActivities()
    pool.set_observed(target=GOOD, updated_nodes=10, ready=10)
    async with rollout_harness(skipping.client, observed_nodepool(**rules), pool) as found:
        await wait_until(lambda: _is_finished(found))
        pool.set_observed(target=BAD, drifted=NODES, updated_nodes=0, ready=0)
        yield found


async def _is_finished(found: RolloutHarness) -> bool:
    return (await found.state()).rollout.finished


@pytest.fixture
async def wave_rollout(skipping: WorkflowEnvironment) -> AsyncIterator[RolloutHarness]:
    async for one in drifted_rollout(skipping, **WAVES, onFailure="rollBack"):
        yield one


@pytest.fixture
async def approval_rollout(skipping: WorkflowEnvironment) -> AsyncIterator[RolloutHarness]:
    async for one in drifted_rollout(skipping, **WAVES, approval={"required": True}):
        yield one


@pytest.fixture
async def gated_rollout(skipping: WorkflowEnvironment) -> AsyncIterator[RolloutHarness]:
    async for one in drifted_rollout(skipping, **WAVES, health=GATE):
        yield one


async def test_finished_rollout_adds_no_events(wave_rollout: RolloutHarness, skipping: WorkflowEnvironment) -> None:
    await skipping.sleep(timedelta(minutes=1))
    before = len((await wave_rollout.handle.fetch_history()).events)
    await skipping.sleep(timedelta(days=2))
    assert len((await wave_rollout.handle.fetch_history()).events) == before
    assert wave_rollout.activities.observe_count == 1


async def test_first_wave_is_limited_and_rest_follows_after_soak(
    wave_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    await wave_rollout.request_permits(*NODES[:5], since=LONG_AGO)
    await wait_until(lambda: wave_rollout.has_permits(1))
    wave_rollout.activities.replace_drifted("n0")
    await wait_until_skipping_time(skipping, lambda: wave_rollout.describes("soaks until"), seconds=20)
    assert await wave_rollout.has_permits(1)
    await wait_until_skipping_time(skipping, lambda: wave_rollout.has_permits(4), seconds=20)
    assert wave_rollout.activities.event_reasons()[:3] == ["RolloutBegan", "RolloutWaveSoaks", "RolloutWaveDone"]
    wave_rollout.activities.replace_drifted(*NODES)
    wave_rollout.activities.set_observed(updated_nodes=10, ready=10)
    await wait_until_skipping_time(skipping, lambda: _is_finished(wave_rollout), seconds=20)
    assert (await wave_rollout.state()).rollout.good == BAD


async def test_health_is_checked_every_minute_during_soak(
    wave_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    await wave_rollout.request_permits("n0", since=LONG_AGO)
    await wait_until(lambda: wave_rollout.has_permits(1))
    wave_rollout.activities.replace_drifted("n0")
    await wait_until_skipping_time(skipping, lambda: wave_rollout.describes("soaks until"), seconds=20)
    before = await count_scheduled(wave_rollout.handle, "observe_rollout")
    await skipping.sleep(timedelta(minutes=5))
    assert await count_scheduled(wave_rollout.handle, "observe_rollout") - before in (4, 5)


async def signal_startup_failures(one: RolloutHarness, now: datetime, *uids: str) -> None:
    for uid in uids:
        ended = StartupOutcome(uid=uid, at=now, reason="RegistrationTimeout")
        await one.handle.signal(RolloutOnlyWorkflow.startup_failed, ended)


async def test_startup_failures_halt_rollout_until_approval(
    approval_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    await signal_startup_failures(approval_rollout, LONG_AGO, "x", "y")
    await approval_rollout.request_permits(*NODES[:3], since=LONG_AGO)
    await wait_until_skipping_time(skipping, lambda: approval_rollout.describes("tenure approve web-"), seconds=20)
    await approve_plan(approval_rollout, await plan_id(approval_rollout))
    await wait_until_skipping_time(skipping, lambda: approval_rollout.has_permits(1), seconds=20)
    await skipping.sleep(timedelta(minutes=3, seconds=10))
    assert not await approval_rollout.describes("halted"), "earlier startup failures do not count"
    await signal_startup_failures(approval_rollout, await skipping.get_current_time(), "v", "w")
    await wait_until_skipping_time(
        skipping, lambda: approval_rollout.describes("2 new NodeClaims failed to start"), seconds=20
    )
    await wait_until_skipping_time(skipping, lambda: approval_rollout.describes("was halted at"), seconds=20)
    await approve_plan(approval_rollout, await plan_id(approval_rollout))
    await skipping.sleep(timedelta(minutes=5))
    assert not await approval_rollout.describes("halted"), "startup failures before the approval do not count"


async def test_failed_gate_holds_rollout(gated_rollout: RolloutHarness, skipping: WorkflowEnvironment) -> None:
    gated_rollout.activities.gate_result = GateResult(outcome="failed", value=3, why="errors: 3 is not below 1")
    await gated_rollout.request_permits(*NODES[:3], since=LONG_AGO)
    await wait_until_skipping_time(
        skipping, lambda: gated_rollout.describes("is blocked: errors: 3 is not below 1"), seconds=20
    )
    assert await gated_rollout.has_permits(0)
    assert "errors: 3 is not below 1" in (await gated_rollout.state()).blocked_by
    gated_rollout.activities.gate_result = GateResult(outcome="passed", value=0)
    await wait_until_skipping_time(skipping, lambda: gated_rollout.has_permits(1), seconds=20)


async def approve_plan(one: RolloutHarness, plan: str, by: str = "ann") -> OperatorRequestResult:
    return await one.handle.execute_update(RolloutOnlyWorkflow.approve, ApproveRollout(plan=plan, by=by))


async def plan_id(one: RolloutHarness) -> str:
    state = (await one.state()).rollout
    return state.halted.plan if state.halted else state.plan.id if state.plan else ""


async def test_plan_waits_for_approval(approval_rollout: RolloutHarness, skipping: WorkflowEnvironment) -> None:
    await approval_rollout.request_permits(*NODES[:3], since=LONG_AGO)
    await wait_until_skipping_time(skipping, lambda: approval_rollout.describes("tenure approve web-"), seconds=20)
    assert await approval_rollout.has_permits(0)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await approve_plan(approval_rollout, "web-000000")
    assert "is unknown or outdated" in str(error.value.cause)
    result = await approve_plan(approval_rollout, await plan_id(approval_rollout))
    assert result.accepted
    await wait_until_skipping_time(skipping, lambda: approval_rollout.has_permits(1), seconds=20)
    await wait_until(lambda: approval_rollout.has_event("RolloutApproved"))


async def test_approval_survives_continue_as_new(
    approval_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    await approval_rollout.request_permits("n0", since=LONG_AGO)
    await wait_until_skipping_time(skipping, lambda: approval_rollout.describes("tenure approve web-"), seconds=20)
    plan = await plan_id(approval_rollout)
    await approve_plan(approval_rollout, plan)
    await approval_rollout.handle.signal(RolloutOnlyWorkflow.force_continue_as_new)
    await wait_until(lambda: has_continued_as_new(skipping.client, approval_rollout.handle))
    restarted = RolloutHarness(
        approval_rollout.activities,
        skipping.client.get_workflow_handle_for(RolloutOnlyWorkflow.run, approval_rollout.handle.id),
    )
    await wait_until_skipping_time(skipping, lambda: restarted.has_permits(1), seconds=20)
    assert await plan_id(restarted) == plan


async def test_unpublished_events_survive_continue_as_new(
    wave_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    activities = wave_rollout.activities
    activities.fails_to_publish = True
    await wave_rollout.request_permits(*NODES[:5], since=LONG_AGO)
    await wait_until(lambda: wave_rollout.has_permits(1))
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.force_continue_as_new)
    await wait_until_skipping_time(skipping, lambda: has_continued_as_new(skipping.client, wave_rollout.handle))
    activities.fails_to_publish = False
    await wait_until_skipping_time(skipping, lambda: wave_rollout.has_event("RolloutBegan"), minutes=2)


async def test_rejected_plan_stops_rollout(approval_rollout: RolloutHarness, skipping: WorkflowEnvironment) -> None:
    await approval_rollout.request_permits("n0", since=LONG_AGO)
    await wait_until_skipping_time(skipping, lambda: approval_rollout.describes("tenure approve web-"), seconds=20)
    rejection = RejectRollout(plan=await plan_id(approval_rollout), by="ben", reason="not before Monday")
    await approval_rollout.handle.execute_update(RolloutOnlyWorkflow.reject, rejection)
    await wait_until_skipping_time(skipping, lambda: approval_rollout.describes("was rejected by ben"), seconds=20)
    await skipping.sleep(timedelta(days=2))
    assert await approval_rollout.has_permits(0)


async def test_rejected_approval_signal_is_published(
    approval_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    await approval_rollout.request_permits("n0", since=LONG_AGO)
    await wait_until_skipping_time(skipping, lambda: approval_rollout.describes("tenure approve web-"), seconds=20)
    await approval_rollout.handle.signal(RolloutOnlyWorkflow.approve_rollout, ApproveRollout(plan="web-1", by="ann"))
    await wait_until_skipping_time(skipping, lambda: approval_rollout.has_event("RolloutRefused"), seconds=20)


async def test_failed_health_check_blocks_permits_and_is_retried(
    wave_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    wave_rollout.activities.fails_to_observe = True
    await wave_rollout.request_permits("n0", since=LONG_AGO)
    await wait_until_skipping_time(
        skipping, lambda: wave_rollout.describes("could not be evaluated: the API server is away"), seconds=5
    )
    assert await wave_rollout.has_permits(0)
    wave_rollout.activities.fails_to_observe = False
    await wait_until_skipping_time(skipping, lambda: wave_rollout.has_permits(1), seconds=20)


async def test_removed_rules_end_rollout(wave_rollout: RolloutHarness, skipping: WorkflowEnvironment) -> None:
    await wave_rollout.request_permits(*NODES[:5], since=LONG_AGO)
    await wait_until(lambda: wave_rollout.has_permits(1))
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.observe, ObservedNodePool(number=2))
    await wait_until_skipping_time(skipping, lambda: wave_rollout.has_permits(5), seconds=20)
    assert (await wave_rollout.state()).rollout == RolloutState()
    assert wave_rollout.activities.notifications[-1].stored_state == ""
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.observe, observed_nodepool(**WAVES, onFailure="rollBack"))
    await wait_until_skipping_time(skipping, lambda: _wave_has_started(wave_rollout), seconds=5)


async def test_rollout_ends_once_its_annotation_can_be_removed(
    wave_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    await wave_rollout.request_permits("n0", since=LONG_AGO)
    await wait_until(lambda: wave_rollout.has_permits(1))
    wave_rollout.activities.fails_to_publish = True
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.observe, ObservedNodePool(number=2))
    await skipping.sleep(timedelta(minutes=3))
    assert not await _has_no_rollout(wave_rollout) and wave_rollout.activities.notifications[-1].stored_state
    wave_rollout.activities.fails_to_publish = False
    await wait_until_skipping_time(skipping, lambda: _has_no_rollout(wave_rollout), seconds=20)
    assert wave_rollout.activities.notifications[-1].stored_state == ""


async def test_change_while_finished_rollout_is_published_is_evaluated(skipping: WorkflowEnvironment) -> None:
    pool = FakeRolloutActivities(publish_gate=asyncio.Event())
    pool.set_observed(target=GOOD, updated_nodes=10, ready=10)
    async with rollout_harness(skipping.client, observed_nodepool(**WAVES), pool) as found:
        await wait_until(lambda: bool(pool.notifications))
        changed = (await found.state()).observed.model_copy(update={"generation": 2})
        await found.handle.signal(RolloutOnlyWorkflow.observe, changed)
        assert (await found.state()).observed == changed and pool.observe_count == 1
        assert pool.publish_gate is not None
        pool.publish_gate.set()
        await wait_until(lambda: pool.observe_count == 2)


async def test_rules_removed_during_check_apply_when_they_return(
    wave_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    changed = observed_nodepool(**WAVES, onFailure="rollBack").model_copy(update={"generation": 2})
    await wave_rollout.request_permits("n0", since=LONG_AGO)
    await wait_until(lambda: wave_rollout.has_permits(1))
    before, wave_rollout.activities.observe_gate = wave_rollout.activities.observe_count, asyncio.Event()
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.observe, changed)
    await wait_until(lambda: wave_rollout.activities.observe_count == (before + 1))
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.observe, ObservedNodePool(number=2))
    wave_rollout.activities.observe_gate.set()
    await wait_until(lambda: _has_no_rollout(wave_rollout))
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.observe, changed)
    await wait_until_skipping_time(skipping, lambda: _wave_has_started(wave_rollout), seconds=5)


async def _has_no_rollout(one: RolloutHarness) -> bool:
    return (await one.state()).rollout == RolloutState()


async def test_usage_change_triggers_no_check_but_generation_change_does(
    wave_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    known = (await wave_rollout.state()).observed
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.observe, known.model_copy(update={"usage": "11 nodes"}))
    await skipping.sleep(timedelta(minutes=1))
    assert wave_rollout.activities.observe_count == 1
    await wave_rollout.handle.signal(RolloutOnlyWorkflow.observe, known.model_copy(update={"generation": 2}))
    await wait_until_skipping_time(skipping, lambda: _wave_has_started(wave_rollout), seconds=5)


async def _wave_has_started(one: RolloutHarness) -> bool:
    return (await one.state()).rollout.wave_began is not None
