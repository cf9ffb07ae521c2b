"""Repair in a node's life: tolerations, flaps, the ladder, the breaker, and what a healthy node costs."""

from datetime import datetime, timedelta
from typing import Any

from tenure.apis import labels
from tenure.model.errors import Forbidden
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    has_continued_as_new,
    is_blocked_by,
    latest_run,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import BUSY, JOINED, ready_nodeclaim, registered_nodeclaim

SICK = (("Ready", "True"), ("KernelReady", "False"))
WELL = (("Ready", "True"), ("KernelReady", "True"))
LADDER: dict[str, Any] = {"repair": {"steps": ["reboot", "replace"], "rebootFor": "5m"}}


async def make_unhealthy(fake: WorkerHarness, handle: Handle, *, since: datetime | None = None, **fields: Any) -> None:
    """Its kernel is not well from now on; `fields` is what else the watch says."""
    since = since or await fake.now()
    fake.nodes.update_node("node-a", conditions=SICK)
    ill = {"type": "KernelReady", "status": "False", "since": since}
    await fake.signal_observed(handle, **{**BUSY, "unhealthy": [ill], **fields})


async def make_healthy(fake: WorkerHarness, handle: Handle, **fields: Any) -> None:
    fake.nodes.update_node("node-a", conditions=WELL, boot_id=fields.get("boot_id", "boot-1"))
    await fake.signal_observed(handle, **{**BUSY, **fields})


async def time_until_drain(handle: Handle, since: datetime) -> timedelta:
    """Until it was drained for its health."""
    outcome = await handle.result()
    assert outcome.reason == "Unhealthy"
    drained: datetime = next(step.at for step in outcome.history if step.phase is Phase.DRAIN)
    return drained - since


async def test_a_node_that_stays_unhealthy_is_replaced_when_that_is_no_longer_tolerated_and_no_pod_holds_it(
    fake: WorkerHarness,
) -> None:
    handle = await ready_nodeclaim(fake, terminationGracePeriod="1h")
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "pdb web"
    since = await fake.now()
    await make_unhealthy(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "unhealthy, KernelReady=False: replace at"))
    assert timedelta(minutes=30) <= await time_until_drain(handle, since) < timedelta(minutes=31)
    assert [name for name, _ in fake.pods.forced] == ["web"] and fake.pods.evicted == []
    assert len(fake.instances.terminated) == 1


async def test_a_node_that_recovers_in_time_stays_and_costs_no_more_than_its_signals(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await make_unhealthy(fake, handle)
    await fake.sleep(minutes=29)
    await make_healthy(fake, handle)
    await fake.sleep(hours=5)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.blocked_by == "" and state.health.intervals == ()
    assert await count_scheduled(handle, "repair_node") == 0


async def test_a_node_that_flaps_is_replaced_once_its_bad_times_add_up(fake: WorkerHarness) -> None:
    rules = {"repair": {"within": "4h"}}
    handle = await ready_nodeclaim(fake)
    began = await fake.now()
    for _ in range(5):
        await make_unhealthy(fake, handle, rules=rules)
        await fake.sleep(minutes=5, seconds=30)
        await make_healthy(fake, handle, rules=rules)
        await fake.sleep(minutes=10)
    assert (await query_state(handle)).phase is Phase.READY
    await make_unhealthy(fake, handle, rules=rules)
    assert timedelta(minutes=79) < await time_until_drain(handle, began) < timedelta(minutes=81)


async def test_a_reboot_that_helps_leaves_the_node_where_it_was(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await make_unhealthy(fake, handle, rules=LADDER)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rebooted for KernelReady=False"), minutes=1)
    assert fake.instances.rebooted == ["i-0000"]
    fake.nodes.update_node("node-a", ready=False)
    await make_unhealthy(fake, handle, rules=LADDER, node_ready=False)
    await fake.sleep(minutes=1)
    fake.nodes.update_node("node-a", ready=True)
    await make_healthy(fake, handle, rules=LADDER, boot_id="boot-2")
    await fake.sleep(minutes=1)
    await wait_until_phase(handle, Phase.READY)
    await wait_until(lambda: "Repaired" in fake.events.reasons_for("a"))
    await fake.sleep(hours=3)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.boot_id == "boot-2" and state.blocked_by == ""
    assert fake.instances.rebooted == ["i-0000"] and fake.events.reasons_for("a")[-2:] == ["Rebooting", "Repaired"]


async def test_a_reboot_that_does_not_help_is_followed_by_a_replacement(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await fake.now()
    await make_unhealthy(fake, handle, rules=LADDER)
    assert timedelta(minutes=35) <= await time_until_drain(handle, since) < timedelta(minutes=36)
    assert fake.instances.rebooted == ["i-0000"]


async def test_a_machine_that_came_back_and_whose_node_does_not_start_is_replaced_too(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await fake.now()
    await make_unhealthy(fake, handle, rules=LADDER)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rebooted for"), minutes=1)
    fake.nodes.update_node("node-a", ready=False, boot_id="boot-2", conditions=(("Ready", "False"),))
    now = await fake.now()
    rebooted = {"node_ready": False, "boot_id": "boot-2", "rules": LADDER}
    await fake.signal_observed(
        handle, **{**BUSY, **rebooted, "unhealthy": [{"type": "Ready", "status": "False", "since": now}]}
    )
    await wait_until_phase(handle, Phase.INITIALIZATION)
    assert timedelta(minutes=35) <= await time_until_drain(handle, since) < timedelta(minutes=37)
    assert fake.instances.rebooted == ["i-0000"]


async def test_a_role_that_may_not_reboot_leads_to_the_next_step(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.instances.faults["reboot"] = [Forbidden("ec2:RebootInstances") for _ in range(1000)]
    since = await fake.now()
    await make_unhealthy(fake, handle, rules=LADDER)
    assert timedelta(minutes=30) <= await time_until_drain(handle, since) < timedelta(minutes=36)
    assert "RebootFailed" in fake.events.reasons_for("a") and fake.instances.rebooted == []


async def test_while_too_many_are_unhealthy_none_is_replaced_and_it_is_looked_at_again(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    for number in range(3):
        name = f"other-{number}"
        fake.nodes.join(name, f"aws:///us-west-2a/i-1{number}", labels={labels.NODEPOOL: "default"}, conditions=SICK)
    await make_unhealthy(fake, handle)
    await wait_until_skipping_time(
        fake, lambda: is_blocked_by(handle, "4 of 4 nodes of NodePool default are unhealthy"), minutes=1
    )
    await fake.sleep(minutes=16)
    assert (await query_state(handle)).phase is Phase.READY
    assert 3 <= await count_scheduled(handle, "repair_node") <= 5
    for number in range(3):
        fake.nodes.update_node(f"other-{number}", conditions=WELL)
    assert (await handle.result()).reason == "Unhealthy"


async def test_a_graceful_repair_evicts_before_it_deletes(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    await make_unhealthy(fake, handle, rules={"repair": {"drain": "graceful", "drainFor": "10m"}})
    assert (await handle.result()).reason == "Unhealthy"
    assert fake.pods.evicted == ["web"] and fake.pods.forced == []


async def test_a_node_that_is_well_when_it_is_looked_at_closely_stays(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await make_unhealthy(fake, handle)
    fake.nodes.update_node("node-a", conditions=WELL)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "Node node-a is well"), minutes=1)
    await make_healthy(fake, handle)
    await fake.sleep(minutes=5)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.blocked_by == ""


async def test_a_node_that_starts_and_is_unhealthy_for_long_is_replaced_too(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    since = await fake.now()
    fake.nodes.update_node("node-a", conditions=(("Ready", "False"),))
    ill = {"type": "Ready", "status": "False", "since": since - timedelta(minutes=5)}
    await fake.signal_observed(handle, **JOINED, unhealthy=[ill])
    assert timedelta(minutes=24) <= await time_until_drain(handle, since) < timedelta(minutes=26)


async def test_what_is_no_longer_tolerated_when_it_is_told_is_repaired_at_once(fake: WorkerHarness) -> None:
    now = await fake.now()
    handle = await registered_nodeclaim(fake)
    fake.nodes.update_node("node-a", conditions=(("Ready", "False"),))
    ill = {"type": "Ready", "status": "False", "since": now - timedelta(hours=5)}
    await fake.signal_observed(handle, **JOINED, unhealthy=[ill])
    assert await time_until_drain(handle, now) < timedelta(minutes=1)


async def test_a_change_of_the_rules_counts_for_what_lasts_already(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await fake.now()
    await make_unhealthy(fake, handle)
    await fake.sleep(minutes=10)
    mine = {"type": "KernelReady", "status": "False", "toleration": "15m"}
    await make_unhealthy(fake, handle, since=since, rules={"repair": {"conditions": [mine]}})
    assert timedelta(minutes=15) <= await time_until_drain(handle, since) < timedelta(minutes=16)


async def test_the_clock_runs_on_through_continue_as_new(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await fake.now()
    for _ in range(130):
        await make_unhealthy(fake, handle, since=since)
        await fake.sleep(seconds=1)
    await wait_until(lambda: has_continued_as_new(fake.client, handle))
    assert (await query_state(latest_run(fake.client, handle))).health.intervals[0].since == since
