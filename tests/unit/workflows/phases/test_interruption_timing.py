"""Interruptions that arrive or are due while a NodeClaim workflow waits for something else are acted on at once."""

from datetime import datetime, timedelta
from typing import Any

from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim.node_identity import REGISTERED_GAP
from tenure.model.nodeclaim.state import NodeClaimOutcome, Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    is_blocked_by,
    is_in_phase,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.interruption_messages import (
    blocked_for_approval,
    interruption_rules,
    ready_with_rules,
    send_message,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    delete_nodeclaim,
    launched_nodeclaim,
    observe_empty,
    ready_nodeclaim,
    registered_nodeclaim,
    start_nodepool,
)
from tests.unit.workflows.phases.test_repair import REBOOT_RULES, drained_for_reboot


async def test_interruption_is_handled_during_empty_node_backoff(fake: WorkerHarness) -> None:
    """After 25 minutes the workflow checks the node every ten minutes, and the test skips no time afterwards."""
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    fake.pods.add("node-a", "web")
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "not empty: default/web"), seconds=10)
    await fake.sleep(minutes=25)
    await send_message(fake, handle, "spotInterruption")
    await wait_until(lambda: fake.pods.evicted == ["web"])


async def test_interruption_is_handled_while_node_is_missing(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    await send_message(fake, handle, "spotInterruption")
    await wait_until(lambda: is_past_ready(handle))
    assert (await handle.result()).reason == "spot_interrupted"


async def test_failed_status_check_forces_drain_after_failed_write(fake: WorkerHarness) -> None:
    handle = await blocked_for_approval(fake)
    fake.pods.blocked["db"] = "a budget"
    await wait_until(lambda: is_blocked_by(handle, "default/db"))
    fake.claims.faults["patch"] = [BadInput("denied by a webhook")]
    await send_message(fake, handle, "instanceStatus", source="status")
    await wait_until_skipping_time(fake, lambda: [name for name, _ in fake.pods.forced] == ["db"], seconds=5)
    await handle.result()


async def is_past_ready(handle: Handle) -> bool:
    return (await query_state(handle)).phase is not Phase.READY


async def test_interruption_events_are_published_after_nodeclaim_deletion(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    publish, tries = fake.events.publish, 0

    async def busy(*, name: str, reason: str, **fields: Any) -> None:
        """Fail while the NodeClaim exists."""
        nonlocal tries
        if reason == "SpotInterrupted" and "a" in fake.claims.found:
            tries += 1
            raise TryLater("too many requests")
        await publish(name=name, reason=reason, **fields)

    fake.events.publish = busy  # type: ignore[method-assign]
    await send_message(fake, handle, "spotInterruption")
    await handle.result()
    assert tries
    assert {"SpotInterrupted", "TerminatingOnInterruption"} <= set(fake.events.reasons_for("a"))


async def test_interruption_is_handled_although_an_activity_has_just_failed(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.faults["register"] = [BadInput("denied by a webhook")]
    await fake.signal_observed(handle, **BUSY, registration_gaps=(REGISTERED_GAP,))
    await wait_until(lambda: is_blocked_by(handle, "denied by a webhook"))
    began = await fake.now()
    await send_message(fake, handle, "spotInterruption")
    assert entered_at(await handle.result(), Phase.DRAIN) - began < timedelta(seconds=10)


# --- interruptions that are due ---

DEFERRED: dict[str, Any] = {"action": "deferUntilEventStart", "lead": "1m"}
RULES = interruption_rules(scheduledChange=DEFERRED)
SOON = timedelta(minutes=1)


def entered_at(outcome: NodeClaimOutcome, phase: Phase) -> datetime:
    return next(step.at for step in outcome.history if step.phase is phase)


async def send_event_due_in(fake: WorkerHarness, handle: Handle, **due: float) -> datetime:
    """Signal a scheduled change. Returns when its drain is due."""
    due_at = await fake.now() + timedelta(**due)
    await send_message(fake, handle, starts=due_at + timedelta(minutes=1))
    return due_at


async def test_due_event_is_handled_while_node_is_missing(fake: WorkerHarness) -> None:
    """The instance is checked at growing intervals, next after eight minutes."""
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle, **RULES)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    await fake.sleep(minutes=4, seconds=20)
    due_at = await send_event_due_in(fake, handle, seconds=30)
    assert entered_at(await handle.result(), Phase.DRAIN) - due_at < SOON


async def test_due_event_is_handled_during_empty_node_backoff(fake: WorkerHarness) -> None:
    """After 25 minutes the workflow checks the node every ten minutes."""
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    fake.pods.add("node-a", "web")
    await observe_empty(fake, handle, **RULES)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "not empty: default/web"), seconds=10)
    await fake.sleep(minutes=25)
    due_at = await send_event_due_in(fake, handle, seconds=30)
    assert entered_at(await handle.result(), Phase.DRAIN) - due_at < SOON


async def test_due_event_is_handled_while_live_node_is_not_initialized(fake: WorkerHarness) -> None:
    """After ten minutes the workflow checks the node every five minutes."""
    handle = await registered_nodeclaim(fake)
    await fake.signal_observed(handle, **BUSY, **RULES)
    await fake.sleep(minutes=10, seconds=10)
    due_at = await send_event_due_in(fake, handle, seconds=30)
    assert entered_at(await handle.result(), Phase.DRAIN) - due_at < SOON


async def test_due_event_that_needs_no_more_permit_is_handled_after_a_reboot(fake: WorkerHarness) -> None:
    rules = interruption_rules(scheduledChange={"action": "drain", "voluntary": True, "lead": "1m"})
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await fake.signal_observed(handle, **BUSY, **rules)
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2", "node_ready": False}, **rules)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    due_at = await send_event_due_in(fake, handle, minutes=5)
    assert entered_at(await handle.result(), Phase.DRAIN) - due_at < SOON


async def test_started_event_ends_registration_of_a_node_that_would_be_stopped(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, **interruption_rules(scheduledChange={"action": "stopStart"}))
    starts = await fake.now() + timedelta(minutes=5)
    await send_message(fake, handle, starts=starts)
    outcome = await handle.result()
    assert outcome.reason == "scheduled_change" and entered_at(outcome, Phase.TERMINATION) - starts < SOON


async def test_due_event_overrides_do_not_disrupt_in_a_blocked_drain(fake: WorkerHarness) -> None:
    """After two hours, the blocked drain tries again every half an hour."""
    override = {**DEFERRED, "doNotDisrupt": "override"}
    handle = await ready_with_rules(fake, scheduledChange=override)
    fake.pods.add("node-a", "kept", evictable=False, protected=True, why_not="annotation karpenter.sh/do-not-disrupt")
    await delete_nodeclaim(fake, handle, **interruption_rules(scheduledChange=override))
    await wait_until(lambda: is_blocked_by(handle, "default/kept"))
    await fake.sleep(hours=2)
    due_at = await send_event_due_in(fake, handle, seconds=30)
    outcome = await handle.result()
    assert fake.pods.evicted == ["web", "kept"] and entered_at(outcome, Phase.TERMINATION) - due_at < SOON


async def test_due_event_is_handled_while_node_is_emptied_to_be_rebooted(fake: WorkerHarness) -> None:
    """After five minutes, the drain tries again when its ten minutes are over."""
    rules = {**REBOOT_RULES, "interruption": {"scheduledChange": DEFERRED}}
    handle = await drained_for_reboot(fake, rules=rules)
    fake.pods.add("node-a", "kept", evictable=False, protected=True, why_not="annotation karpenter.sh/do-not-disrupt")
    fake.pods.blocked.clear()
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "default/kept"), seconds=5)
    await fake.sleep(minutes=5, seconds=40)
    due_at = await send_event_due_in(fake, handle, seconds=30)
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.DRAIN), seconds=5)
    since = (await query_state(handle)).since
    assert since and since - due_at < SOON
