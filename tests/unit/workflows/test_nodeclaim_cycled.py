"""A node whose instance Tenure stops and starts for maintenance: it is emptied, kept, and initialized again."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis.labels import DISRUPTED_TAINT_KEY
from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, eventually, in_phase, latest, state_of
from tests.support.workflows.lives import BUSY
from tests.support.workflows.noticed import notice, ready_under, rules
from tests.unit.workflows.continuing import continued

CYCLE: dict[str, Any] = {"action": "stopStart", "away": "20m"}


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.nodeclaim.instance.STOP_START_POLL_SECONDS", 0.01)


def in_service(fake: World) -> bool:
    return DISRUPTED_TAINT_KEY not in {key for key, _, _ in fake.nodes.found["node-a"].taints}


async def stopping(fake: World, skipping: WorkflowEnvironment, **held: Any) -> Handle:
    """A node whose maintenance is announced for in two days."""
    handle = await ready_under(fake, skipping, scheduledChange=CYCLE, **held)
    await notice(fake, skipping, handle, starts=await skipping.get_current_time() + timedelta(hours=48))
    return handle


async def cycled(fake: World, states: list[str]) -> bool:
    return fake.instances.entered == states


async def step(handle: Handle, name: str) -> bool:
    stop = (await state_of(handle)).stop
    return stop is not None and stop.step == name


async def more_nodes(fake: World, handle: Handle, number: int) -> None:
    await fake.see(handle, **{**BUSY, "node_count": 2 + number}, **rules(scheduledChange=CYCLE))


async def come_back(fake: World, skipping: WorkflowEnvironment, handle: Handle) -> None:
    fake.nodes.change("node-a", ready=True, boot_id="boot-2")
    since = await skipping.get_current_time()
    await fake.see(handle, **{**BUSY, "boot_id": "boot-2"}, ready_since=since, **rules(scheduledChange=CYCLE))


async def test_its_pods_leave_its_instance_goes_and_comes_and_the_node_stays(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await stopping(fake, skipping)
    await eventually(lambda: step(handle, "back"))
    assert fake.pods.evicted == ["web"] and await cycled(fake, ["stopped", "running"])
    assert not in_service(fake) and await blocked(handle, "its machine boots after maintenance")
    assert (await state_of(handle)).waits_until is not None
    await notice(fake, skipping, handle, "instanceStopping")
    await come_back(fake, skipping, handle)
    await eventually(lambda: step(handle, "done"))
    await in_phase(handle, Phase.READY)
    assert in_service(fake)
    await skipping.sleep(timedelta(hours=72))
    state = await state_of(handle)
    assert (state.phase, state.blocked_by, state.reboots, state.notices[0].done) == (Phase.READY, "", 1, True)
    assert await cycled(fake, ["stopped", "running"]) and fake.instances.terminated == []
    assert "StopStartOver" in fake.events.reasons("a")
    assert "deletionTimestamp" not in fake.claims.found["a"]["metadata"]


async def test_a_machine_that_does_not_come_back_is_drained_for_good(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await stopping(fake, skipping)
    began = await skipping.get_current_time()
    outcome = await handle.result()
    (drained,) = (one.at for one in outcome.story if one.phase is Phase.DRAIN)
    assert outcome.reason == "scheduled_change"
    assert timedelta(minutes=19) <= drained - began < timedelta(minutes=22)


async def test_an_instance_whose_disks_would_be_lost_is_drained_for_good(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping, scheduledChange=CYCLE)
    (name,) = fake.instances.running
    fake.instances.running[name] = fake.instances.running[name].model_copy(update={"root": "instance-store"})
    await notice(fake, skipping, handle)
    assert (await handle.result()).reason == "scheduled_change"
    assert fake.instances.entered == []


async def test_a_stop_is_seen_to_its_end_though_the_status_of_a_stopped_instance_is_not_listed(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which reads as if the event were over; also where the run is continued meanwhile."""
    handle = await stopping(fake, skipping)
    await eventually(lambda: step(handle, "back"))
    await notice(fake, skipping, handle, status="over")
    await continued(handle, monkeypatch, lambda number: more_nodes(fake, handle, number))
    follower = latest(fake.client, handle)
    await come_back(fake, skipping, follower)
    await eventually(lambda: step(follower, "done"))
    await in_phase(follower, Phase.READY)
    assert in_service(fake)


async def test_an_instance_that_cannot_be_started_again_is_drained_for_good_though_its_event_is_over(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping, scheduledChange=CYCLE)
    fake.instances.faults["start"] = [TryLater("no room in us-west-2a", code="InsufficientInstanceCapacity")] * 1000
    await notice(fake, skipping, handle, starts=await skipping.get_current_time() + timedelta(hours=48))
    await eventually(lambda: step(handle, "start"))
    await notice(fake, skipping, handle, status="over")
    assert (await handle.result()).reason == "scheduled_change"


async def test_what_ec2_refuses_becomes_a_drain(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping, scheduledChange=CYCLE)
    fake.instances.faults["stop"] = [BadInput("the instance may not be stopped")]
    await notice(fake, skipping, handle)
    assert (await handle.result()).reason == "scheduled_change"


async def test_a_node_that_is_not_empty_when_aws_acts_is_drained_for_good(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await ready_under(fake, skipping, scheduledChange=CYCLE)
    fake.pods.blocked["web"] = "a budget"
    await notice(fake, skipping, handle, starts=await skipping.get_current_time() + timedelta(seconds=3))
    await in_phase(handle, Phase.DRAIN)
    assert fake.instances.entered == []
    fake.pods.blocked.clear()
    assert (await handle.result()).reason == "scheduled_change"


async def test_a_node_that_is_deleted_meanwhile_goes(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await stopping(fake, skipping)
    await eventually(lambda: step(handle, "back"))
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, **BUSY, deleting=True, **rules(scheduledChange=CYCLE))
    assert (await handle.result()).reason == "Deleted"


async def test_it_goes_on_in_another_run(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await stopping(fake, skipping)
    await eventually(lambda: step(handle, "back"))
    await continued(handle, monkeypatch, lambda number: more_nodes(fake, handle, number))
    follower = latest(fake.client, handle)
    await come_back(fake, skipping, follower)
    await eventually(lambda: step(follower, "done"))
    assert await cycled(fake, ["stopped", "running"])
