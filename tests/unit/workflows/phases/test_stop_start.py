"""Stop and start for maintenance: the node is drained, kept without pods, and initialized again."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.kubernetes import condition_statuses
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    is_blocked_by,
    is_in_phase,
    is_stop_in_step,
    latest_run,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.interruption_messages import interruption_rules, ready_with_rules, send_message
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, is_in_service
from tests.unit.workflows.continue_as_new import wait_until_continued_as_new

STOP_START: dict[str, Any] = {"action": "stopStart", "away": "20m"}


@pytest.fixture(autouse=True)
def short_stop_start_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.nodeclaim.instance.STOP_START_POLL_SECONDS", 0.01)


async def nodeclaim_with_maintenance(fake: WorkerHarness, **other_rules: Any) -> Handle:
    """A node with maintenance scheduled in two days."""
    handle = await ready_with_rules(fake, scheduledChange=STOP_START, **other_rules)
    await send_message(fake, handle, starts=await fake.now() + timedelta(hours=48))
    return handle


async def observe_more_nodes(fake: WorkerHarness, handle: Handle, number: int) -> None:
    await fake.signal_observed(
        handle, **{**BUSY, "node_count": 2 + number}, **interruption_rules(scheduledChange=STOP_START)
    )


async def observe_return(fake: WorkerHarness, handle: Handle) -> None:
    fake.nodes.update_node("node-a", ready=True, boot_id="boot-2")
    since = await fake.now()
    await fake.signal_observed(
        handle, **{**BUSY, "boot_id": "boot-2"}, ready_since=since, **interruption_rules(scheduledChange=STOP_START)
    )


async def has_conditions(fake: WorkerHarness, statuses: dict[str, str]) -> bool:
    return condition_statuses(fake.nodes.found["node-a"]) == statuses


async def test_node_is_drained_stopped_started_and_kept(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_maintenance(fake)
    await wait_until(lambda: is_stop_in_step(handle, "back"))
    assert fake.pods.evicted == ["web"] and (fake.instances.entered_states == ["stopped", "running"])
    assert not is_in_service(fake) and await is_blocked_by(handle, "its instance boots after maintenance")
    assert (await query_state(handle)).waits_until is not None
    in_maintenance = {"DrainInProgress": "False", "Drained": "True", "MaintenanceInProgress": "True"}
    await wait_until(lambda: has_conditions(fake, in_maintenance))
    await send_message(fake, handle, "instanceStopping")
    await observe_return(fake, handle)
    await wait_until(lambda: is_stop_in_step(handle, "done"))
    await wait_until_phase(handle, Phase.READY)
    assert is_in_service(fake)
    await wait_until(lambda: has_conditions(fake, {}))
    await fake.sleep(hours=72)
    state = await query_state(handle)
    assert (state.phase, state.blocked_by, state.reboots, state.interruptions[0].done) == (Phase.READY, "", 1, True)
    assert (fake.instances.entered_states == ["stopped", "running"]) and fake.instances.terminated == []
    assert "StopStartOver" in fake.events.reasons_for("a")
    assert "deletionTimestamp" not in fake.claims.found["a"]["metadata"]


async def test_instance_that_does_not_start_in_time_is_terminated(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_maintenance(fake)
    began = await fake.now()
    outcome = await handle.result()
    (drained,) = (one.at for one in outcome.history if one.phase is Phase.DRAIN)
    assert outcome.reason == "scheduled_change"
    assert timedelta(minutes=19) <= drained - began < timedelta(minutes=22)


async def test_instance_with_instance_store_root_is_terminated(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, scheduledChange=STOP_START)
    (name,) = fake.instances.running
    fake.instances.running[name] = fake.instances.running[name].model_copy(update={"root": "instance-store"})
    await send_message(fake, handle)
    assert (await handle.result()).reason == "scheduled_change"
    assert fake.instances.entered_states == []


async def test_event_missing_for_stopped_instance_does_not_end_stop(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS lists no status of a stopped instance, which looks as if the event were over. It holds across runs too."""
    handle = await nodeclaim_with_maintenance(fake)
    await wait_until(lambda: is_stop_in_step(handle, "back"))
    await send_message(fake, handle, status="over")
    await wait_until_continued_as_new(handle, monkeypatch, lambda number: observe_more_nodes(fake, handle, number))
    latest = latest_run(fake.client, handle)
    await observe_return(fake, latest)
    await wait_until(lambda: is_stop_in_step(latest, "done"))
    await wait_until_phase(latest, Phase.READY)
    assert is_in_service(fake) and fake.instances.entered_states == ["stopped", "running"]


async def test_instance_that_cannot_start_is_terminated_although_event_ended(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, scheduledChange=STOP_START)
    fake.instances.faults["start"] = [TryLater("no room in us-west-2a", code="InsufficientInstanceCapacity")] * 1000
    await send_message(fake, handle, starts=await fake.now() + timedelta(hours=48))
    await wait_until(lambda: is_stop_in_step(handle, "start"))
    await send_message(fake, handle, status="over")
    assert (await handle.result()).reason == "scheduled_change"


async def test_rejected_stop_falls_back_to_drain(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, scheduledChange=STOP_START)
    fake.instances.faults["stop"] = [BadInput("the instance may not be stopped")]
    await send_message(fake, handle)
    assert (await handle.result()).reason == "scheduled_change"


async def test_node_with_pods_at_event_start_is_terminated(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await ready_with_rules(fake, scheduledChange=STOP_START)
    fake.pods.blocked["web"] = "a budget"
    await send_message(fake, handle, starts=await fake.now() + timedelta(seconds=3))
    await wait_until_phase(handle, Phase.DRAIN)
    assert fake.instances.entered_states == []
    fake.pods.blocked.clear()
    assert (await handle.result()).reason == "scheduled_change"


async def test_node_returns_to_service_although_its_taint_could_not_be_removed(fake: WorkerHarness) -> None:
    """The event is over, so nothing else would remove the taint."""
    handle = await ready_with_rules(fake, scheduledChange=STOP_START)
    fake.pods.blocked["web"] = "a budget"
    await send_message(fake, handle, starts=await fake.now() + timedelta(hours=48))
    await wait_until(lambda: is_blocked_by(handle, "is emptied to be stopped"))
    fake.nodes.faults["unmark_disrupted"] = [BadInput("denied by a webhook")]
    await send_message(fake, handle, status="over")
    await fake.sleep(minutes=2)
    assert is_in_service(fake) and await has_conditions(fake, {})


async def test_rejected_taint_removal_does_not_hide_later_stops(fake: WorkerHarness) -> None:
    """After the stop and start, AWS's events about the instance count again."""
    handle = await nodeclaim_with_maintenance(fake)
    await wait_until(lambda: is_stop_in_step(handle, "back"))
    fake.nodes.faults["unmark_disrupted"] = [BadInput("denied by a webhook")]
    await observe_return(fake, handle)
    await wait_until_phase(handle, Phase.READY)
    await fake.sleep(minutes=2)
    assert is_in_service(fake) and await is_stop_in_step(handle, "done")


async def test_instance_that_terminates_while_it_boots_is_replaced_at_once(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_maintenance(fake)
    await wait_until(lambda: is_stop_in_step(handle, "back"))
    began = await fake.now()
    await send_message(fake, handle, "instanceTerminating")
    outcome = await handle.result()
    (drained,) = (one.at for one in outcome.history if one.phase is Phase.DRAIN)
    assert outcome.reason == "instance_terminated" and drained - began < timedelta(minutes=1)


async def test_other_event_that_is_due_ends_the_drain_before_a_stop(fake: WorkerHarness) -> None:
    """After two hours, the blocked drain tries again every half an hour."""
    approval = {"action": "waitForApproval", "deadline": "1m"}
    handle = await ready_with_rules(fake, scheduledChange=STOP_START, rebalanceRecommendation=approval)
    fake.pods.add("node-a", "kept", evictable=False, protected=True, why_not="annotation karpenter.sh/do-not-disrupt")
    await send_message(fake, handle, starts=await fake.now() + timedelta(hours=48))
    await wait_until(lambda: is_blocked_by(handle, "is emptied to be stopped"))
    await fake.sleep(hours=2)
    due_at = await fake.now() + timedelta(minutes=1)
    await send_message(fake, handle, "rebalanceRecommendation")
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.DRAIN), seconds=10)
    since = (await query_state(handle)).since
    assert since and since - due_at < timedelta(minutes=1)


async def test_nodeclaim_deleted_during_stop_is_terminated(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_maintenance(fake)
    await wait_until(lambda: is_stop_in_step(handle, "back"))
    await delete_nodeclaim(fake, handle, **interruption_rules(scheduledChange=STOP_START))
    assert (await handle.result()).reason == "Deleted"
