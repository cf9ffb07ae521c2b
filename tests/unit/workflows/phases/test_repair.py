"""Node repair: tolerations, flaps, repair steps, the limit of unhealthy nodes, and the cost of a healthy node."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.model.errors import Forbidden, TryLater
from tenure.model.node_health import RepairDue
from tenure.model.nodeclaim.state import Phase
from tenure.model.signals import Pause, Resume
from tenure.policy.lifecycle.repair import Repair, decide_repair
from tests.support.fakes.kubernetes import node_conditions
from tests.support.fakes.temporal_dev_server import served_by_temporal
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
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    JOINED,
    ready_nodeclaim,
    registered_nodeclaim,
    start_nodepool,
)

UNHEALTHY = node_conditions(Ready="True", KernelReady="False")
HEALTHY = node_conditions(Ready="True", KernelReady="True")
REBOOT_RULES: dict[str, Any] = {"repair": {"steps": ["reboot", "replace"], "rebootFor": "5m"}}


async def make_unhealthy(fake: WorkerHarness, handle: Handle, *, since: datetime | None = None, **fields: Any) -> None:
    """Set KernelReady=False on the Node and signal the observation; `fields` are added to it."""
    since = since or await fake.now()
    fake.nodes.update_node("node-a", conditions=UNHEALTHY)
    unhealthy_condition = {"type": "KernelReady", "status": "False", "since": since}
    await fake.signal_observed(handle, **{**BUSY, "unhealthy": [unhealthy_condition], **fields})


async def make_healthy(fake: WorkerHarness, handle: Handle, **fields: Any) -> None:
    fake.nodes.update_node("node-a", conditions=HEALTHY, boot_id=fields.get("boot_id", "boot-1"))
    await fake.signal_observed(handle, **{**BUSY, **fields})


async def time_until_drain(handle: Handle, since: datetime) -> timedelta:
    """Time from `since` to the start of the drain for the Unhealthy reason."""
    outcome = await handle.result()
    assert outcome.reason == "Unhealthy"
    drained: datetime = next(step.at for step in outcome.history if step.phase is Phase.DRAIN)
    return drained - since


async def test_unhealthy_node_is_replaced_by_force_after_toleration(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, terminationGracePeriod="1h")
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "pdb web"
    since = await fake.now()
    await make_unhealthy(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "unhealthy, KernelReady=False: replace at"))
    assert timedelta(minutes=30) <= await time_until_drain(handle, since) < timedelta(minutes=31)
    assert [name for name, _ in fake.pods.forced] == ["web"] and fake.pods.evicted == []
    assert len(fake.instances.terminated) == 1


async def test_node_that_recovers_within_toleration_is_kept(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await make_unhealthy(fake, handle)
    await fake.sleep(minutes=29)
    await make_healthy(fake, handle)
    await fake.sleep(hours=5)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.blocked_by == "" and state.health.intervals == ()
    assert await count_scheduled(handle, "repair_node") == 0


async def test_successful_reboot_keeps_node(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await make_unhealthy(fake, handle, rules=REBOOT_RULES)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rebooted for KernelReady=False"), minutes=1)
    assert fake.instances.rebooted == ["i-0000"]
    fake.nodes.update_node("node-a", ready=False)
    await make_unhealthy(fake, handle, rules=REBOOT_RULES, node_ready=False)
    await fake.sleep(minutes=1)
    fake.nodes.update_node("node-a", ready=True)
    await make_healthy(fake, handle, rules=REBOOT_RULES, boot_id="boot-2")
    await fake.sleep(minutes=1)
    await wait_until_phase(handle, Phase.READY)
    await wait_until(lambda: "Repaired" in fake.events.reasons_for("a"))
    await fake.sleep(hours=3)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.boot_id == "boot-2" and state.blocked_by == ""
    assert fake.instances.rebooted == ["i-0000"] and fake.events.reasons_for("a")[-2:] == ["RebootObserved", "Repaired"]
    claim = fake.claims.found["a"]
    assert reason_of(claim, labels.REBOOTING) == ("False", labels.REBOOT_SUCCEEDED)
    assert reason_of(claim, labels.INITIALIZED_CONDITION)[0] == "True"
    assert not claim["metadata"]["annotations"].get(labels.REBOOT_PRE_BOOT_ID)
    assert not has_rebooting_taint(fake)


async def has_scheduled(handle: Handle, activity: str) -> bool:
    return await count_scheduled(handle, activity) > 0


def reason_of(claim: dict[str, Any], type_: str) -> tuple[str, str]:
    """Status and reason of the NodeClaim's condition."""
    found: dict[str, Any] = next((one for one in claim["status"]["conditions"] if one["type"] == type_), {})
    return found.get("status", ""), found.get("reason", "")


def has_rebooting_taint(fake: WorkerHarness) -> bool:
    return any(one.key == labels.REBOOTING_TAINT_KEY for one in fake.nodes.found["node-a"].taints)


async def drained_for_reboot(
    fake: WorkerHarness, *, rules: dict[str, Any] = REBOOT_RULES, bound: str = "10m0s"
) -> Handle:
    """A node of a NodePool whose blocked pod is evicted for a reboot, for ten minutes at most, or without a `bound`.

    Its toleration has ended, so that no time is skipped: drains measure progress with the real clock.
    """
    await start_nodepool(fake)
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "pdb web"
    since = await fake.now() - timedelta(hours=1)
    await make_unhealthy(fake, handle, repair_mode="replace", rules=rules, since=since)
    await wait_until(lambda: is_blocked_by(handle, "is emptied to be rebooted"))
    claim = fake.claims.found["a"]
    assert reason_of(claim, labels.REBOOTING) == ("True", labels.REBOOT_REQUESTED) and has_rebooting_taint(fake)
    assert claim["metadata"]["annotations"].get(labels.REBOOT_TERMINATION_GRACE_PERIOD, "") == bound
    assert fake.instances.rebooted == []
    return handle


async def test_reboot_follows_a_drain_that_never_forces_pods(fake: WorkerHarness) -> None:
    handle = await drained_for_reboot(fake)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rebooted for"), minutes=1)
    claim = fake.claims.found["a"]
    assert fake.instances.rebooted == ["i-0000"] and fake.pods.forced == []
    assert reason_of(claim, labels.REBOOTING) == ("True", labels.REBOOT_ISSUED)
    assert reason_of(claim, labels.INITIALIZED_CONDITION) == ("Unknown", labels.REBOOTING)
    assert claim["metadata"]["annotations"][labels.REBOOT_PRE_BOOT_ID] == "boot-1"
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "waits for its replacement"), minutes=1)
    assert reason_of(claim, labels.REBOOTING) == ("False", labels.REBOOT_FAILED) and not has_rebooting_taint(fake)
    assert reason_of(claim, labels.INITIALIZED_CONDITION)[0] == "True" and fake.instances.rebooted == ["i-0000"]


@pytest.fixture
async def unskipped() -> AsyncIterator[WorkerHarness]:
    """A worker of a real server: the time-skipping server may fail a workflow task that cancels an activity that has
    just completed (ACTIVITY_UNKNOWN)."""
    async with served_by_temporal() as environment, WorkerHarness.on(environment).running_worker() as working:
        yield working


async def is_reboot_cancelled(fake: WorkerHarness, handle: Handle) -> bool:
    is_set = reason_of(fake.claims.found["a"], labels.REBOOTING) != ("", "")
    return not (has_rebooting_taint(fake) or is_set) and (await query_state(handle)).health.reboot is None


async def test_node_that_recovers_during_the_drain_is_not_rebooted(unskipped: WorkerHarness) -> None:
    handle = await drained_for_reboot(unskipped)
    await make_healthy(unskipped, handle, rules=REBOOT_RULES)
    await wait_until(lambda: is_reboot_cancelled(unskipped, handle))
    unskipped.pods.blocked.clear()
    state = await query_state(handle)
    assert (
        state.phase is Phase.READY and state.drain is None and decide_repair(state, await unskipped.now()) == Repair()
    )
    assert unskipped.instances.rebooted == [] and unskipped.pods.evicted == []


@pytest.mark.parametrize("step", ["observe_reboot", "end_reboot"])
async def test_failing_end_of_a_reboot_does_not_delay_a_deletion(unskipped: WorkerHarness, step: str) -> None:
    handle = await ready_nodeclaim(unskipped)
    since = await unskipped.now() - timedelta(hours=1)
    await make_unhealthy(unskipped, handle, rules=REBOOT_RULES, since=since)
    await wait_until(lambda: is_blocked_by(handle, "rebooted for KernelReady=False"))
    unskipped.nodes.faults["unmark_rebooting"] = [
        *([None] if step == "end_reboot" else []),
        *[TryLater("503")] * 10_000,
    ]
    await make_healthy(unskipped, handle, rules=REBOOT_RULES, boot_id="boot-2")
    await wait_until(lambda: has_scheduled(handle, step))
    await unskipped.claims.delete("a", "uid-a")
    await unskipped.signal_observed(handle, **{**BUSY, "boot_id": "boot-2", "rules": REBOOT_RULES, "deleting": True})
    assert (await handle.result()).reason == "Deleted"


async def test_pause_cancels_the_drain_before_a_reboot_until_it_ends(unskipped: WorkerHarness) -> None:
    handle = await drained_for_reboot(unskipped)
    pause = Pause(by="ops", reason="upgrade", until=await unskipped.now() + timedelta(hours=1))
    await handle.signal("pause_disruption", pause)
    await wait_until(lambda: is_reboot_cancelled(unskipped, handle))
    await wait_until(lambda: is_blocked_by(handle, "is paused by ops"))
    assert unskipped.instances.rebooted == []
    unskipped.pods.blocked.clear()
    await handle.signal("resume_disruption", Resume())
    await wait_until(lambda: is_blocked_by(handle, "rebooted for KernelReady=False"))
    assert unskipped.instances.rebooted == ["i-0000"] and unskipped.pods.evicted == ["web"]
    assert unskipped.events.messages("Evicted") == ["Evicted pod: Unhealthy"]
    assert "DisruptionBlocked" not in unskipped.events.reasons_for("a")


async def test_reboot_fails_if_pods_cannot_be_evicted_without_a_bound(fake: WorkerHarness) -> None:
    condition = {"type": "KernelReady", "status": "False", "toleration": "1m"}
    rules = {"repair": {**REBOOT_RULES["repair"], "conditions": [condition]}, "drain": {"deadline": "5m"}}
    began = await fake.now()
    handle = await drained_for_reboot(fake, rules=rules, bound="")
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "waits for its replacement"), minutes=1)
    claim = fake.claims.found["a"]
    assert reason_of(claim, labels.REBOOTING) == ("False", labels.REBOOT_FAILED) and not has_rebooting_taint(fake)
    assert fake.instances.rebooted == [] and fake.pods.forced == []
    failed_at = (await query_state(handle)).health.step_at
    assert failed_at is not None and failed_at - began >= timedelta(minutes=5)


async def test_node_in_a_shifted_zone_is_replaced_without_a_reboot(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.update_node("node-a", labels={**fake.nodes.found["node-a"].labels, labels.ZONE_ID: "usw2-az1"})
    fake.instances.shifted_zones.add("usw2-az1")
    since = await fake.now()
    await make_unhealthy(fake, handle, rules=REBOOT_RULES)
    assert timedelta(minutes=34) <= await time_until_drain(handle, since) < timedelta(minutes=37)
    assert fake.instances.rebooted == [] and "RebootFailed" in fake.events.reasons_for("a")


async def test_node_that_stays_not_ready_after_reboot_is_replaced(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await fake.now()
    await make_unhealthy(fake, handle, rules=REBOOT_RULES)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rebooted for"), minutes=1)
    fake.nodes.update_node("node-a", ready=False, boot_id="boot-2", conditions=node_conditions(Ready="False"))
    now = await fake.now()
    rebooted = {"node_ready": False, "boot_id": "boot-2", "rules": REBOOT_RULES}
    await fake.signal_observed(
        handle, **{**BUSY, **rebooted, "unhealthy": [{"type": "Ready", "status": "False", "since": now}]}
    )
    await wait_until_phase(handle, Phase.INITIALIZATION)
    assert timedelta(minutes=35) <= await time_until_drain(handle, since) < timedelta(minutes=37)
    assert fake.instances.rebooted == ["i-0000"]


async def test_forbidden_reboot_continues_with_next_step(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.instances.faults["reboot"] = [Forbidden("ec2:RebootInstances") for _ in range(1000)]
    since = await fake.now()
    await make_unhealthy(fake, handle, rules=REBOOT_RULES)
    assert timedelta(minutes=30) <= await time_until_drain(handle, since) < timedelta(minutes=36)
    assert "RebootFailed" in fake.events.reasons_for("a") and fake.instances.rebooted == []


async def test_too_many_unhealthy_nodes_block_repair_until_retry(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    for number in range(3):
        name = f"other-{number}"
        fake.nodes.join(
            name, f"aws:///us-west-2a/i-1{number}", labels={labels.NODEPOOL: "default"}, conditions=UNHEALTHY
        )
    await make_unhealthy(fake, handle)
    await wait_until_skipping_time(
        fake, lambda: is_blocked_by(handle, "4 of 4 nodes of NodePool default are unhealthy"), minutes=1
    )
    await fake.sleep(minutes=16)
    assert (await query_state(handle)).phase is Phase.READY
    assert 3 <= await count_scheduled(handle, "repair_node") <= 5
    for number in range(3):
        fake.nodes.update_node(f"other-{number}", conditions=HEALTHY)
    assert (await handle.result()).reason == "Unhealthy"


async def test_graceful_repair_evicts_pods_before_deletion(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    await make_unhealthy(fake, handle, rules={"repair": {"drain": "graceful", "drainFor": "10m"}})
    assert (await handle.result()).reason == "Unhealthy"
    assert fake.pods.evicted == ["web"] and fake.pods.forced == []


async def test_node_healthy_in_live_check_is_kept(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await make_unhealthy(fake, handle)
    fake.nodes.update_node("node-a", conditions=HEALTHY)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "Node node-a is healthy or gone"), minutes=1)
    await make_healthy(fake, handle)
    await fake.sleep(minutes=5)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.blocked_by == ""


async def test_unhealthy_uninitialized_node_is_replaced(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    since = await fake.now()
    fake.nodes.update_node("node-a", conditions=node_conditions(Ready="False"))
    unhealthy_condition = {"type": "Ready", "status": "False", "since": since - timedelta(minutes=5)}
    await fake.signal_observed(handle, **JOINED, unhealthy=[unhealthy_condition])
    assert timedelta(minutes=24) <= await time_until_drain(handle, since) < timedelta(minutes=26)


async def test_changed_toleration_applies_to_current_condition(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await fake.now()
    await make_unhealthy(fake, handle)
    await fake.sleep(minutes=10)
    mine = {"type": "KernelReady", "status": "False", "toleration": "15m"}
    await make_unhealthy(fake, handle, since=since, rules={"repair": {"conditions": [mine]}})
    assert timedelta(minutes=15) <= await time_until_drain(handle, since) < timedelta(minutes=16)


async def test_unhealthy_time_survives_continue_as_new(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await fake.now()
    for _ in range(130):
        await make_unhealthy(fake, handle, since=since)
        await fake.sleep(seconds=1)
    await wait_until(lambda: has_continued_as_new(fake.client, handle))
    assert (await query_state(latest_run(fake.client, handle))).health.intervals[0].since == since


async def test_voluntary_repair_requests_a_replacement_and_withdraws_the_request(fake: WorkerHarness) -> None:
    """A disruption command deletes the NodeClaim; the node's workflow only requests it."""
    handle = await ready_nodeclaim(fake)
    await make_unhealthy(fake, handle, repair_mode="replace")
    await wait_until_skipping_time(
        fake, lambda: is_blocked_by(handle, "unhealthy, KernelReady=False: waits for its replacement"), minutes=1
    )
    annotations = fake.claims.found["a"]["metadata"]["annotations"]
    due = RepairDue.parse(annotations[labels.REPAIR_DUE])
    assert due and due.condition == "KernelReady=False" and due.grace == timedelta(minutes=10)
    await fake.sleep(hours=3)
    assert (await query_state(handle)).phase is Phase.READY and await count_scheduled(handle, "repair_node") == 1
    await make_healthy(fake, handle)
    await wait_until(lambda: annotations[labels.REPAIR_DUE] == "")
    assert (await query_state(handle)).health.requested is None
    assert await count_scheduled(handle, "repair_node") == 2


async def test_do_not_repair_withdraws_the_request(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await fake.now() - timedelta(hours=1)
    await make_unhealthy(fake, handle, repair_mode="replace", since=since)
    annotations = fake.claims.found["a"]["metadata"]["annotations"]
    await wait_until(lambda: labels.REPAIR_DUE in annotations)
    await make_unhealthy(fake, handle, repair_mode="replace", since=since, do_not_repair=True)
    await wait_until(lambda: annotations[labels.REPAIR_DUE] == "")
    await wait_until(lambda: is_blocked_by(handle, "karpenter.sh/do-not-repair"))
    await wait_until(lambda: "DisruptionBlocked" in fake.events.reasons_for("node-a"))
    assert fake.events.reasons_for("a").count("DisruptionBlocked") == 1
