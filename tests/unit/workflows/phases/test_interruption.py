"""Interruption events of AWS: drain, defer, wait for approval, or keep the node, and the report of each."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.labels import INTERRUPTIONS, NODECLAIM_TERMINATION_TIMESTAMP
from tenure.model.interruption.messages import EventKind, InterruptionMessage
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState, Phase
from tests.support.fakes.kubernetes import condition_statuses
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    has_state,
    is_blocked_by,
    is_in_phase,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.interruption_messages import (
    STATEFUL,
    interruption_rules,
    ready_with_rules,
    send_message,
    signal_interruption,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    launched_nodeclaim,
    pause_for,
    registered_nodeclaim,
    start_nodepool,
)
from workflows.activity_options import DRAIN, drain_queue_options
from workflows.nodeclaim import NodeClaimWorkflow

DEFER = {"action": "deferUntilEventStart", "lead": "1h"}
IN_TWO_DAYS = timedelta(hours=48)


def interruptions_annotation(fake: WorkerHarness) -> str:
    return str(fake.claims.found["a"]["metadata"]["annotations"].get(INTERRUPTIONS, ""))


async def has_conditions(fake: WorkerHarness, **statuses: str) -> bool:
    return condition_statuses(fake.nodes.found["node-a"]) == statuses


async def has_event(fake: WorkerHarness, reason: str, name: str = "a") -> bool:
    return reason in fake.events.reasons_for(name)


@pytest.mark.parametrize(
    ("kind", "disruption_reason", "reason"),
    [
        ("spotInterruption", "spot_interrupted", "SpotInterrupted"),
        (
            "capacityReservationInterruption",
            "capacity_reservation_interrupted",
            "CapacityReservationInstanceInterrupted",
        ),
        ("scheduledChange", "scheduled_change", "InstanceUnhealthy"),
        ("instanceStopping", "instance_stopped", "InstanceStopping"),
        ("instanceTerminating", "instance_terminated", "InstanceTerminating"),
    ],
)
async def test_default_rules_drain_node_on_interruption(
    fake: WorkerHarness, kind: EventKind, disruption_reason: str, reason: str
) -> None:
    handle = await ready_with_rules(fake)
    await send_message(fake, handle, kind)
    assert (await handle.result()).reason == disruption_reason
    assert fake.pods.evicted == ["web"] and fake.pods.forced == []
    for name in ("a", "node-a"):
        assert [one for one in fake.events.reasons_for(name) if one in (reason, "TerminatingOnInterruption")] == [
            reason,
            "TerminatingOnInterruption",
        ]


def test_activities_of_an_interrupted_node_come_first() -> None:
    identity = NodeClaimIdentity(cluster="c", name="a", uid="uid-a", created=datetime(2026, 3, 1, tzinfo=UTC))
    states = [NodeClaimState(identity=identity, interrupted=key) for key in ("", "spotInterruption/terminate")]
    found = [drain_queue_options(DRAIN, state, "drain node-a") for state in states]
    assert [one["priority"].priority_key for one in found] == [3, 1]
    assert {one["task_queue"] for one in found} == {"c-drain"}


async def test_early_evicted_pods_are_in_outcome(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    spot = InterruptionMessage(kind="spotInterruption", id="terminate", at=await fake.now())
    await signal_interruption(fake, handle, spot, early_evicted_pods=("default/gone", "default/web"))
    assert (await handle.result()).evicted_pods == ("default/gone", "default/web")


@pytest.mark.parametrize("kind", ["instanceStatus", "systemStatus"])
async def test_node_with_failed_status_check_is_drained_by_force(fake: WorkerHarness, kind: EventKind) -> None:
    handle = await ready_with_rules(fake)
    fake.pods.add("node-a", "kept", evictable=False, protected=True, why_not="annotation")
    fake.pods.blocked["web"] = "a budget"
    written: list[str] = []
    deleted = fake.claims.delete

    async def delete(name: str, uid: str) -> bool:
        written.append(fake.claims.found[name]["metadata"]["annotations"].get(NODECLAIM_TERMINATION_TIMESTAMP, ""))
        return await deleted(name, uid)

    fake.claims.delete = delete  # type: ignore[method-assign]
    await send_message(fake, handle, kind, source="status")
    await handle.result()
    assert sorted(name for name, _ in fake.pods.forced) == ["kept", "web"]
    assert written[0], "the termination timestamp is written before the deletion"


@pytest.mark.parametrize(
    ("rules", "kind", "source", "published"),
    [
        ({"instanceStatus": {"action": "notify"}}, "instanceStatus", "status", "InstanceUnhealthy"),
        ({}, "rebalanceRecommendation", "queue", "SpotRebalanceRecommendation"),
        ({"spotInterruption": {"action": "ignore"}}, "spotInterruption", "queue", ""),
    ],
    ids=["notified check", "rebalance recommendation", "ignored interruption"],
)
async def test_event_without_action_keeps_node(
    fake: WorkerHarness, rules: dict[str, Any], kind: EventKind, source: str, published: str
) -> None:
    handle = await ready_with_rules(fake, **rules)
    await send_message(fake, handle, kind, source=source)
    if published:
        await wait_until(lambda: has_event(fake, published, "node-a"))
    await fake.sleep(hours=1)
    assert await is_in_phase(handle, Phase.READY) and not await is_blocked_by(handle, "rebalance")
    assert "SpotInterrupted" not in fake.events.reasons_for("a")


async def test_event_of_another_instance_is_ignored(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    fake.claims.found["a"]["status"]["providerID"], mine = (
        "aws:///x/i-other",
        fake.claims.found["a"]["status"]["providerID"],
    )
    await send_message(fake, handle, "spotInterruption")
    fake.claims.found["a"]["status"]["providerID"] = mine
    await fake.sleep(minutes=1)
    assert await is_in_phase(handle, Phase.READY) and (await query_state(handle)).interruptions == ()


async def test_repeated_event_is_published_once(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, scheduledChange={"action": "notify"})
    now = await fake.now()
    first = await send_message(fake, handle, starts=now + IN_TWO_DAYS, source="status")
    await wait_until(lambda: has_event(fake, "InstanceUnhealthy"))
    for _ in range(20):
        await signal_interruption(fake, handle, first)
        await fake.sleep(minutes=1)
    await send_message(fake, handle, id="health", starts=now + IN_TWO_DAYS)
    await fake.sleep(minutes=1)
    assert fake.events.reasons_for("a").count("InstanceUnhealthy") == 1
    assert await count_scheduled(handle, "publish_interruption_events") <= 2


@pytest.mark.parametrize("start_node", [launched_nodeclaim, registered_nodeclaim])
async def test_starting_node_is_deleted_on_interruption(fake: WorkerHarness, start_node: Any) -> None:
    handle = await start_node(fake)
    await send_message(fake, handle, "spotInterruption")
    assert (await handle.result()).reason == "spot_interrupted"
    assert len(fake.instances.terminated) == 1 and fake.claims.found == {}


@pytest.mark.parametrize("start_node", [launched_nodeclaim, registered_nodeclaim])
async def test_starting_node_with_deferred_event_is_deleted_before_event(fake: WorkerHarness, start_node: Any) -> None:
    handle = await start_node(fake)
    began = await fake.now()
    fields = {} if start_node is launched_nodeclaim else {"node_name": "node-a", "node_count": 1}
    await fake.signal_observed(handle, **fields, **interruption_rules(scheduledChange={**DEFER, "lead": "1m"}))
    await send_message(fake, handle, starts=began + timedelta(minutes=6))
    outcome = await handle.result()
    assert outcome.reason == "scheduled_change"
    disrupted_at = next(step.at for step in outcome.history if step.phase in (Phase.DRAIN, Phase.TERMINATION))
    assert timedelta(minutes=5) <= disrupted_at - began < timedelta(minutes=5, seconds=30)


async def test_pause_does_not_block_spot_interruption(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(fake, hours=5))
    await send_message(fake, handle, "spotInterruption")
    assert (await handle.result()).reason == "spot_interrupted"


async def nodeclaim_with_deferred_event(fake: WorkerHarness) -> Handle:
    handle = await ready_with_rules(fake, scheduledChange=DEFER)
    starts = (await fake.now()) + IN_TWO_DAYS
    await send_message(fake, handle, starts=starts, code="instance-stop")
    await wait_until(lambda: is_blocked_by(handle, "deferred until"))
    state = await query_state(handle)
    assert state.waits_until == starts - timedelta(hours=1)
    await wait_until(lambda: bool(interruptions_annotation(fake)))
    return handle


async def test_deferred_event_is_reported_and_drains_before_event(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_deferred_event(fake)
    began = await fake.now()
    outcome = await handle.result()
    (drained,) = (step for step in outcome.history if step.phase is Phase.DRAIN)
    assert timedelta(hours=46, minutes=55) < drained.at - began <= timedelta(hours=47, seconds=10)
    assert drained.cause.startswith("scheduled_change: scheduledChange instance-stop at ")


async def test_withdrawn_event_is_removed_and_published(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_deferred_event(fake)
    await wait_until(lambda: has_conditions(fake, MaintenancePlanned="True"))
    await send_message(fake, handle, status="withdrawn")
    await wait_until(lambda: has_conditions(fake))
    await wait_until(lambda: has_event(fake, "InterruptionWithdrawn"))
    await fake.sleep(IN_TWO_DAYS)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.blocked_by == "" and state.waits_until is None
    assert interruptions_annotation(fake) == ""


async def test_moved_event_is_rescheduled(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_deferred_event(fake)
    later = (await fake.now()) + timedelta(hours=100)
    await send_message(fake, handle, starts=later, code="instance-stop")
    await fake.sleep(hours=90)
    assert await is_in_phase(handle, Phase.READY)
    outcome = await handle.result()
    (drained,) = (step.at for step in outcome.history if step.phase is Phase.DRAIN)
    assert abs(drained - (later - timedelta(hours=1))) < timedelta(minutes=1)
    assert any("moved from" in message for _, _, message in fake.events.published)


async def test_changed_rules_apply_to_known_event(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_deferred_event(fake)
    await fake.signal_observed(handle, **BUSY, **interruption_rules(scheduledChange={"action": "notify"}))
    await wait_until_skipping_time(fake, lambda: has_state(handle, blocked_by=""), seconds=1)
    await fake.signal_observed(handle, **BUSY)
    assert (await handle.result()).reason == "scheduled_change"


async def test_rebuilt_workflow_restores_deferred_event(fake: WorkerHarness) -> None:
    handle = await nodeclaim_with_deferred_event(fake)
    before = await query_state(handle)
    await fake.sleep(hours=3)
    await handle.terminate("the store was lost")
    claim = await fake.claims.get("a")
    assert claim is not None
    fake.claims.found["a"]["status"]["nodeName"] = "node-a"
    rebuilt = await fake.start(claim, **BUSY, **interruption_rules(scheduledChange=DEFER))
    await wait_until_phase(rebuilt, Phase.READY)
    await wait_until(lambda: is_blocked_by(rebuilt, "deferred until"))
    after = await query_state(rebuilt)
    assert (after.waits_until, after.interruptions) == (before.waits_until, before.interruptions)
    assert (await rebuilt.result()).reason == "scheduled_change"


# --- approvals ---

APPROVAL = {"action": "waitForApproval", "deadline": "24h", "lead": "1h"}


async def nodeclaim_waiting_for_approval(fake: WorkerHarness, **more: Any) -> Handle:
    handle = await ready_with_rules(fake, scheduledChange={**APPROVAL, **more})
    await send_message(fake, handle, starts=(await fake.now()) + IN_TWO_DAYS)
    await wait_until(lambda: is_blocked_by(handle, "waits for approval until"))
    return handle


async def send_decision(handle: Handle, verb: str, **fields: str) -> Any:
    return await handle.execute_update(verb, {"by": "ann", "reason": "agreed", **fields})


async def test_approved_event_drains_node(fake: WorkerHarness) -> None:
    handle = await nodeclaim_waiting_for_approval(fake)
    await fake.sleep(hours=5)
    result = await send_decision(handle, "approve_event")
    assert result["accepted"] and "approved by ann" in result["message"]
    await handle.result()
    assert "InterruptionApproved" in fake.events.reasons_for("a")


async def test_rejected_event_drains_before_event_starts(fake: WorkerHarness) -> None:
    handle = await nodeclaim_waiting_for_approval(fake)
    result = await send_decision(handle, "reject_event")
    assert "before AWS acts" in result["message"]
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "rejected by ann: agreed"), seconds=1)
    await wait_until(lambda: has_event(fake, "InterruptionRejected"))
    await fake.sleep(hours=40)
    assert await is_in_phase(handle, Phase.READY)
    await handle.result()


async def test_rejected_event_with_notify_fallback_keeps_node(fake: WorkerHarness) -> None:
    """The annotation stores the decision, so it survives the loss of the workflow."""
    handle = await nodeclaim_waiting_for_approval(fake, fallback="notify")
    await send_decision(handle, "reject_event")
    await wait_until(lambda: has_event(fake, "InterruptionRejected"))
    assert '"by":"ann"' in interruptions_annotation(fake)
    await fake.sleep(hours=60)
    assert await is_in_phase(handle, Phase.READY)


@pytest.mark.parametrize(
    ("start_nodeclaim", "fields", "expected_message"),
    [
        (nodeclaim_waiting_for_approval, {"by": " "}, "expected the requester"),
        (nodeclaim_waiting_for_approval, {"reason": "x" * 301}, "expected at most 300"),
        (nodeclaim_with_deferred_event, {}, "no event that waits for approval"),
    ],
    ids=["no requester", "long reason", "nothing to approve"],
)
async def test_invalid_decision_is_rejected(
    fake: WorkerHarness, start_nodeclaim: Any, fields: dict[str, str], expected_message: str
) -> None:
    handle = await start_nodeclaim(fake)
    with pytest.raises(Exception, match="failed") as error:
        await send_decision(handle, "approve_event", **fields)
    assert expected_message in str(error.value.__cause__)


# --- permits ---


async def test_voluntary_event_action_requests_permit(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, rebalanceRecommendation={"action": "drain", "voluntary": True})
    await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await send_message(fake, handle, "rebalanceRecommendation")
    await wait_until_skipping_time(
        fake, lambda: is_blocked_by(handle, "rebalanceRecommendation; NodePool default: budget 0"), seconds=10
    )
    await send_message(fake, handle, "spotInterruption")
    assert (await handle.result()).reason == "spot_interrupted"


async def test_voluntary_event_action_drains_with_permit(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, rebalanceRecommendation={"action": "drain", "voluntary": True})
    await start_nodepool(fake, budgets=[{"nodes": "1"}])
    await send_message(fake, handle, "rebalanceRecommendation")
    assert (await handle.result()).reason == "rebalance_recommendation"
    assert fake.pods.evicted == ["web"]


# --- drains ---


async def test_workload_rule_delays_matching_pods_only(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, workloads=[STATEFUL])
    fake.pods.add("node-a", "db", labels={"state": "kept"})
    await send_message(fake, handle, starts=(await fake.now()) + IN_TWO_DAYS)
    await wait_until(lambda: is_blocked_by(handle, "default/db: scheduledChange"))
    assert await is_blocked_by(handle, "interruption.workloads[0] waits for approval until")
    assert fake.pods.evicted == ["web"]
    assert "deletionTimestamp" not in fake.claims.found["a"]["metadata"]
    await send_decision(handle, "approve_event")
    await handle.result()
    assert fake.pods.evicted == ["web", "db"]


async def test_withdrawn_event_cancels_drain(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, workloads=[STATEFUL])
    fake.pods.add("node-a", "db", labels={"state": "kept"})
    await send_message(fake, handle, starts=(await fake.now()) + IN_TWO_DAYS)
    await wait_until(lambda: is_blocked_by(handle, "default/db"))
    await send_message(fake, handle, status="withdrawn")
    await wait_until_phase(handle, Phase.READY)
    assert not fake.nodes.found["node-a"].being_disrupted
    assert (await query_state(handle)).interrupted == "" and fake.pods.evicted == ["web"]


async def test_do_not_disrupt_pod_blocks_until_policy_overrides(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    fake.pods.add("node-a", "kept", evictable=False, protected=True, why_not="annotation karpenter.sh/do-not-disrupt")
    await send_message(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "default/kept"))
    assert fake.pods.evicted == ["web"]
    await fake.signal_observed(
        handle, **BUSY, deleting=True, **interruption_rules(scheduledChange={"doNotDisrupt": "override"})
    )
    await handle.result()
    assert fake.pods.evicted == ["web", "kept"]


# --- instances that come back ---

NOT_READY: dict[str, Any] = {**BUSY, "node_ready": False, "not_ready_reason": "NotReady"}


async def test_stopped_instance_is_awaited_and_node_initialized_again(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, instanceStopping={"action": "ignore", "away": "30m"})
    event_rules = interruption_rules(instanceStopping={"action": "ignore", "away": "30m"})
    await send_message(fake, handle, "instanceStopping")
    await wait_until(lambda: is_blocked_by(handle, "its instance is stopped, and the node is kept until"))
    await wait_until(lambda: bool(interruptions_annotation(fake)))
    annotations = fake.claims.found["a"]["metadata"]["annotations"]
    assert labels.MAINTENANCE_UNTIL in annotations
    fake.nodes.update_node("node-a", ready=False)
    await fake.signal_observed(handle, **NOT_READY, not_ready_since=await fake.now(), **event_rules)
    await fake.sleep(minutes=20)
    assert await is_in_phase(handle, Phase.READY) and fake.pods.evicted == []
    fake.nodes.update_node("node-a", ready=True, boot_id="boot-2")
    back = {**BUSY, "boot_id": "boot-2", "ready_since": await fake.now()}
    await fake.signal_observed(handle, **back, **event_rules)
    await wait_until(lambda: has_state(handle, reboots=1))
    await wait_until_phase(handle, Phase.READY)
    await fake.sleep(hours=2)
    state = await query_state(handle)
    assert (state.phase, state.blocked_by, state.waits_until) == (Phase.READY, "", None)
    await fake.signal_observed(handle, **{**NOT_READY, "boot_id": "boot-2"}, **event_rules)
    await fake.sleep(minutes=1)
    assert await is_in_phase(handle, Phase.READY), "a later NotReady interval is independent of the stop"
    assert not {labels.MAINTENANCE_UNTIL, INTERRUPTIONS} & fake.claims.found["a"]["metadata"]["annotations"].keys()
    await fake.signal_observed(handle, **back)
    await fake.sleep(minutes=1)
    assert await is_in_phase(handle, Phase.READY), "the instance runs again, so the policy does not apply"
