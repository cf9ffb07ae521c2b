"""Interruptions that cancel a running drain, and interruptions that AWS withdraws while Tenure acts on them.

The tests use a real server: in about one of thirty runs on a busy machine, the time-skipping server fails a workflow
task that cancels an activity that has just completed (ACTIVITY_UNKNOWN).
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.temporal_dev_server import served_by_temporal
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    is_blocked_by,
    is_in_phase,
    query_state,
    wait_until,
    wait_until_phase,
)
from tests.support.workflows.interruption_messages import (
    STATEFUL,
    blocked_for_approval,
    interruption_rules,
    ready_with_rules,
    send_message,
)
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, is_in_service, registered_nodeclaim
from tests.unit.workflows.phases.test_stop_start import STOP_START


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A real server, which skips no time."""
    async with served_by_temporal() as environment:
        yield environment


async def test_interruption_overrides_approval_of_running_drain(fake: WorkerHarness) -> None:
    handle = await blocked_for_approval(fake)
    await send_message(fake, handle, "spotInterruption")
    assert (await handle.result()).reason == "rebalance_recommendation"
    assert fake.pods.evicted == ["web", "db"]
    assert fake.events.reasons_for("a").count("TerminatingOnInterruption") == 2


async def test_failed_status_check_forces_running_drain(fake: WorkerHarness) -> None:
    handle = await blocked_for_approval(fake)
    fake.pods.blocked["db"] = "a budget"
    await send_message(fake, handle, "instanceStatus", source="status")
    await handle.result()
    assert [name for name, _ in fake.pods.forced] == ["db"]


async def test_interruption_overrides_do_not_disrupt_in_running_drain(fake: WorkerHarness) -> None:
    event_rules = {"spotInterruption": {"doNotDisrupt": "override"}}
    handle = await ready_with_rules(fake, **event_rules)
    fake.pods.add("node-a", "kept", evictable=False, protected=True, why_not="annotation karpenter.sh/do-not-disrupt")
    await delete_nodeclaim(fake, handle, **interruption_rules(**event_rules))
    await wait_until(lambda: is_blocked_by(handle, "default/kept"))
    await send_message(fake, handle, "spotInterruption")
    await handle.result()
    assert fake.pods.evicted == ["web", "kept"]


async def test_withdrawn_event_lets_a_starting_node_initialize(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    rules = interruption_rules(workloads=[STATEFUL])
    fake.pods.add("node-a", "db", labels={"state": "kept"})
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY, **rules, waiting_for=["ResourceNotRegistered: nvidia.com/gpu"])
    await wait_until(lambda: is_blocked_by(handle, "ResourceNotRegistered"))
    await send_message(fake, handle, starts=await fake.now() + timedelta(hours=48))
    await wait_until(lambda: is_blocked_by(handle, "default/db"))
    await send_message(fake, handle, status="withdrawn")
    await wait_until_phase(handle, Phase.INITIALIZATION)
    assert (await query_state(handle)).history[-1].cause == "the drain was cancelled"
    await fake.signal_observed(handle, **BUSY, **rules)
    await wait_until_phase(handle, Phase.READY)
    assert fake.claims.condition_text("a", "Initialized").startswith("True") and is_in_service(fake)


async def test_withdrawn_event_returns_node_to_service(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, scheduledChange=STOP_START)
    fake.pods.blocked["web"] = "a budget"
    await send_message(fake, handle, starts=await fake.now() + timedelta(hours=48))
    await wait_until(lambda: is_blocked_by(handle, "is emptied to be stopped"))
    await send_message(fake, handle, status="withdrawn")
    await wait_until(lambda: is_unaffected(handle))
    assert is_in_service(fake) and fake.instances.entered_states == [] and await is_in_phase(handle, Phase.READY)


async def test_event_that_ends_before_drain_is_cancelled_does_not_fail_workflow(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The activity polls, since pods may still leave."""
    monkeypatch.setattr("activities.nodeclaim.drain.PROGRESS_SECONDS", 600.0)
    handle = await blocked_for_approval(fake)
    await send_message(fake, handle, "instanceStatus", source="status")
    await wait_until(lambda: _cancel_was_requested(handle))
    await send_message(fake, handle, "instanceStatus", source="status", status="over")
    await wait_until(lambda: _drain_was_restarted(handle))
    with suppress(RPCError):
        await send_message(fake, handle, "spotInterruption")
    await handle.result()
    assert "db" in {*fake.pods.evicted, *(name for name, _ in fake.pods.forced)}


async def _cancel_was_requested(handle: Handle) -> bool:
    """Whether a drain activity has a cancellation request, which it receives with its next heartbeat."""
    events = (await handle.fetch_history()).events
    return any(event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED for event in events)


async def _drain_was_restarted(handle: Handle) -> bool:
    """Whether the drain activity was started again, or the drain phase has ended."""
    return await count_scheduled(handle, "drain_node") > 2 or not await is_in_phase(handle, Phase.DRAIN)


async def is_unaffected(handle: Handle) -> bool:
    state = await query_state(handle)
    return state.stop is None and state.blocked_by == ""
