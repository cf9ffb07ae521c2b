"""Repair in a node's life: tolerations, flaps, the ladder, the breaker, and what a healthy node costs."""

from datetime import datetime, timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.model.errors import Forbidden
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import (
    Handle,
    blocked,
    eventually,
    in_phase,
    in_time,
    latest,
    rolled,
    scheduled,
    state_of,
)
from tests.support.workflows.lives import BUSY, JOINED, joined, ready

SICK = (("Ready", "True"), ("KernelReady", "False"))
WELL = (("Ready", "True"), ("KernelReady", "True"))
LADDER: dict[str, Any] = {"repair": {"steps": ["reboot", "replace"], "rebootFor": "5m"}}


async def sicken(
    fake: World, skipping: WorkflowEnvironment, handle: Handle, *, since: datetime | None = None, **seen: Any
) -> None:
    """Its kernel is not well from now on; `seen` is what else the watch says."""
    since = since or await skipping.get_current_time()
    fake.nodes.change("node-a", conditions=SICK)
    ill = {"type": "KernelReady", "status": "False", "since": since}
    await fake.see(handle, **{**BUSY, "unhealthy": [ill], **seen})


async def recover(fake: World, handle: Handle, **seen: Any) -> None:
    fake.nodes.change("node-a", conditions=WELL, boot_id=seen.get("boot_id", "boot-1"))
    await fake.see(handle, **{**BUSY, **seen})


async def lasted(handle: Handle, since: datetime) -> timedelta:
    """Until it was drained for its health."""
    outcome = await handle.result()
    assert outcome.reason == "Unhealthy"
    drained: datetime = next(step.at for step in outcome.story if step.phase is Phase.DRAIN)
    return drained - since


async def test_a_node_that_stays_unhealthy_is_replaced_when_that_is_no_longer_tolerated_and_no_pod_holds_it(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping, terminationGracePeriod="1h")
    fake.pods.place("node-a", "web")
    fake.pods.blocked["web"] = "pdb web"
    since = await skipping.get_current_time()
    await sicken(fake, skipping, handle)
    await eventually(lambda: blocked(handle, "unhealthy, KernelReady=False: replace at"))
    assert timedelta(minutes=30) <= await lasted(handle, since) < timedelta(minutes=31)
    assert [name for name, _ in fake.pods.forced] == ["web"] and fake.pods.evicted == []
    assert len(fake.instances.terminated) == 1


async def test_a_node_that_recovers_in_time_stays_and_costs_no_more_than_its_signals(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await sicken(fake, skipping, handle)
    await skipping.sleep(timedelta(minutes=29))
    await recover(fake, handle)
    await skipping.sleep(timedelta(hours=5))
    state = await state_of(handle)
    assert state.phase is Phase.READY and state.blocked_by == "" and state.health.stretches == ()
    assert await scheduled(handle, "repair_node") == 0


async def test_a_node_that_flaps_is_replaced_once_its_bad_times_add_up(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    rules = {"repair": {"within": "4h"}}
    handle = await ready(fake, skipping)
    began = await skipping.get_current_time()
    for _ in range(5):
        await sicken(fake, skipping, handle, rules=rules)
        await skipping.sleep(timedelta(minutes=5, seconds=30))
        await recover(fake, handle, rules=rules)
        await skipping.sleep(timedelta(minutes=10))
    assert (await state_of(handle)).phase is Phase.READY
    await sicken(fake, skipping, handle, rules=rules)
    assert timedelta(minutes=79) < await lasted(handle, began) < timedelta(minutes=81)


async def test_a_reboot_that_helps_leaves_the_node_where_it_was(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await sicken(fake, skipping, handle, rules=LADDER)
    await in_time(skipping, lambda: blocked(handle, "rebooted for KernelReady=False"), minutes=1)
    assert fake.instances.rebooted == ["i-0000"]
    fake.nodes.change("node-a", ready=False)
    await sicken(fake, skipping, handle, rules=LADDER, node_ready=False)
    await skipping.sleep(timedelta(minutes=1))
    fake.nodes.change("node-a", ready=True)
    await recover(fake, handle, rules=LADDER, boot_id="boot-2")
    await skipping.sleep(timedelta(minutes=1))
    await in_phase(handle, Phase.READY)
    await eventually(lambda: healed(fake))
    await skipping.sleep(timedelta(hours=3))
    state = await state_of(handle)
    assert state.phase is Phase.READY and state.boot_id == "boot-2" and state.blocked_by == ""
    assert fake.instances.rebooted == ["i-0000"] and fake.events.reasons("a")[-2:] == ["Rebooting", "Repaired"]


async def healed(fake: World) -> bool:
    return "Repaired" in fake.events.reasons("a")


async def test_a_reboot_that_does_not_help_is_followed_by_a_replacement(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    since = await skipping.get_current_time()
    await sicken(fake, skipping, handle, rules=LADDER)
    assert timedelta(minutes=35) <= await lasted(handle, since) < timedelta(minutes=36)
    assert fake.instances.rebooted == ["i-0000"]


async def test_a_machine_that_came_back_and_whose_node_does_not_start_is_replaced_too(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    since = await skipping.get_current_time()
    await sicken(fake, skipping, handle, rules=LADDER)
    await in_time(skipping, lambda: blocked(handle, "rebooted for"), minutes=1)
    fake.nodes.change("node-a", ready=False, boot_id="boot-2", conditions=(("Ready", "False"),))
    now = await skipping.get_current_time()
    gone = {"node_ready": False, "boot_id": "boot-2", "rules": LADDER}
    await fake.see(handle, **{**BUSY, **gone, "unhealthy": [{"type": "Ready", "status": "False", "since": now}]})
    await in_phase(handle, Phase.INITIALIZATION)
    assert timedelta(minutes=35) <= await lasted(handle, since) < timedelta(minutes=37)
    assert fake.instances.rebooted == ["i-0000"]


async def test_a_role_that_may_not_reboot_leads_to_the_next_step(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.instances.faults["reboot"] = [Forbidden("ec2:RebootInstances") for _ in range(1000)]
    since = await skipping.get_current_time()
    await sicken(fake, skipping, handle, rules=LADDER)
    assert timedelta(minutes=30) <= await lasted(handle, since) < timedelta(minutes=36)
    assert "RebootFailed" in fake.events.reasons("a") and fake.instances.rebooted == []


async def test_while_too_many_are_unhealthy_none_is_replaced_and_it_is_looked_at_again(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    for number in range(3):
        name = f"other-{number}"
        fake.nodes.join(name, f"aws:///us-west-2a/i-1{number}", labels={labels.NODEPOOL: "default"}, conditions=SICK)
    await sicken(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "4 of 4 nodes of NodePool default are unhealthy"), minutes=1)
    await skipping.sleep(timedelta(minutes=16))
    assert (await state_of(handle)).phase is Phase.READY
    assert 3 <= await scheduled(handle, "repair_node") <= 5
    for number in range(3):
        fake.nodes.change(f"other-{number}", conditions=WELL)
    assert (await handle.result()).reason == "Unhealthy"


async def test_a_graceful_repair_evicts_before_it_deletes(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.pods.place("node-a", "web")
    await sicken(fake, skipping, handle, rules={"repair": {"drain": "graceful", "drainFor": "10m"}})
    assert (await handle.result()).reason == "Unhealthy"
    assert fake.pods.evicted == ["web"] and fake.pods.forced == []


async def test_a_node_that_is_well_when_it_is_looked_at_closely_stays(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await sicken(fake, skipping, handle)
    fake.nodes.change("node-a", conditions=WELL)
    await in_time(skipping, lambda: blocked(handle, "Node node-a is well"), minutes=1)
    await recover(fake, handle)
    await skipping.sleep(timedelta(minutes=5))
    state = await state_of(handle)
    assert state.phase is Phase.READY and state.blocked_by == ""


async def test_a_node_that_starts_and_is_unhealthy_for_long_is_replaced_too(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await joined(fake, skipping)
    since = await skipping.get_current_time()
    fake.nodes.change("node-a", conditions=(("Ready", "False"),))
    ill = {"type": "Ready", "status": "False", "since": since - timedelta(minutes=5)}
    await fake.see(handle, **JOINED, unhealthy=[ill])
    assert timedelta(minutes=24) <= await lasted(handle, since) < timedelta(minutes=26)


async def test_what_is_no_longer_tolerated_when_it_is_told_is_repaired_at_once(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    now = await skipping.get_current_time()
    handle = await joined(fake, skipping)
    fake.nodes.change("node-a", conditions=(("Ready", "False"),))
    ill = {"type": "Ready", "status": "False", "since": now - timedelta(hours=5)}
    await fake.see(handle, **JOINED, unhealthy=[ill])
    assert await lasted(handle, now) < timedelta(minutes=1)


async def test_a_change_of_the_rules_counts_for_what_lasts_already(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    since = await skipping.get_current_time()
    await sicken(fake, skipping, handle)
    await skipping.sleep(timedelta(minutes=10))
    mine = {"type": "KernelReady", "status": "False", "toleration": "15m"}
    await sicken(fake, skipping, handle, since=since, rules={"repair": {"conditions": [mine]}})
    assert timedelta(minutes=15) <= await lasted(handle, since) < timedelta(minutes=16)


async def test_the_clock_runs_on_through_continue_as_new(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    since = await skipping.get_current_time()
    for _ in range(130):
        await sicken(fake, skipping, handle, since=since)
        await skipping.sleep(timedelta(seconds=1))
    await eventually(lambda: rolled(fake.client, handle))
    assert (await state_of(latest(fake.client, handle))).health.stretches[0].since == since
