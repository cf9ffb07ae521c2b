"""Stop and start of an instance for maintenance that AWS has announced, so that the node is kept.

In Ready: drain the pods, stop and start the instance, wait for its reboot, then initialization. If a step fails or
takes too long, the node is drained and terminated.
"""

from datetime import datetime
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.instance import InstanceActivities
from tenure.model.disruption.drain import PodDrainRule
from tenure.model.interruption.records import Event, InstanceStopStart
from tenure.model.nodeclaim.requests import (
    CancelDrainRequest,
    DrainRequest,
    DrainResult,
    NodeClaimDisruptionRequest,
    StopStartResult,
)
from tenure.model.nodeclaim.state import Phase
from tenure.policy.drain.decision import drain_state_after
from tenure.policy.interruption.decision import (
    decide_event,
    event_overrides_do_not_disrupt,
    live_events,
    next_decision_at,
    pods_blocked_by_event,
    stop_start_deadline,
)
from tenure.policy.interruption.events import record_done
from tenure.policy.lifecycle.ready import drain_rules
from workflows.activity_options import (
    DRAIN,
    MIN_POLL_TIMEOUT,
    PATCH,
    TERMINATE,
    drain_queue_options,
    execute_unless,
    poll_timeout,
    with_summary,
)
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.blocked_drain import wait_for_drain_change
from workflows.phases.interruption import must_drain

STOP_START = "StopStart"
RETURNED_MESSAGE = "its instance was stopped and started, and is back"


async def stop_and_start(context: NodeClaimContext, key: str) -> Phase | None:
    """The next phase; None if the decision must be made again."""
    previous = context.state.stop
    if previous is None or previous.key != key or previous.step in ("done", "failed"):
        context.update_state(stop=InstanceStopStart(key=key, since=context.now, boot_id=context.state.observed.boot_id))
    if not context.state.out_of_service:
        await _take_out_of_service(context)
    while True:
        stop = context.state.stop
        assert stop is not None
        match stop.step:
            case "drain":
                if not await _drain_for_stop(context, key):
                    await _return_to_service(context, "the event no longer requires a stop")
                    context.update_state(stop=None)
                    return None
                _update_step(context, step="stop", deadline=context.now + stop_start_deadline(context.state, key))
            case "stop" | "start":
                if not await _stop_or_start_instance(context, stop):
                    return None
            case "back":
                return Phase.INITIALIZATION if await _wait_for_reboot(context, stop) else None
            case _:
                return None


def _update_step(context: NodeClaimContext, **fields: Any) -> None:
    stop = context.state.stop
    assert stop is not None
    context.update_state(
        stop=stop.model_copy(update=fields), waits_until=fields.get("deadline", context.state.waits_until)
    )
    context.publish_status()


async def _take_out_of_service(context: NodeClaimContext) -> None:
    """Taint the Node. The NodeClaim's condition has the reason, so a recovered workflow makes the Node schedulable
    again. `run_ready` does so when the decision changes in between."""
    context.update_state(out_of_service=True)
    request = NodeClaimDisruptionRequest(
        claim=context.nodeclaim_ref, reason="StopStart", voluntary=False, defers_deletion=True
    )
    await workflow.execute_activity_method(
        DisruptionActivities.disrupt_nodeclaim, request, **with_summary(PATCH, "taint the node")
    )


async def _drain_for_stop(context: NodeClaimContext, key: str) -> bool:
    """False if the event no longer requires a stop, another event requires a drain, or the node is being deleted."""
    while (event := _find_requested_event(context, key)) is not None:
        context.continue_as_new_if_suggested()
        blocked_pods, override = (
            pods_blocked_by_event(context.state, event, context.now),
            event_overrides_do_not_disrupt(context.state, event),
        )
        previous = context.state.drain.status if context.state.drain else None
        decision_at = next_decision_at(context.state, context.now)
        change_times = (*(pods.until for pods in blocked_pods if pods.blocked), decision_at)
        request = DrainRequest(
            claim=context.nodeclaim_ref,
            known_blockers=previous.status_line if previous else "",
            known=previous,
            poll_timeout=poll_timeout(context.now, event.starts, *change_times).total_seconds(),
            began=context.state.stop.since if context.state.stop else None,
            defers_deletion=True,
            stay=True,
            rules=drain_rules(context.state),
            pod_rules=blocked_pods,
            override=override,
        )
        observed = context.state.observed
        inputs_changed = partial(_has_changed, context, key, event, blocked_pods, decision_at)
        options = drain_queue_options(DRAIN, context.state, f"drain {context.state.node_name} to stop its instance")
        result: DrainResult | None = await execute_unless(DrainActivities.drain_node, request, options, inputs_changed)
        if result is not None and result.outcome != "waiting":
            context.update_state(drain=None)
            return True
        if result is not None:
            context.update_state(drain=drain_state_after(context.state.drain, result.status, defers_deletion=True))
            context.set_blocked_by(f"is emptied to be stopped: {result.blockers}", STOP_START)
            if result.is_waiting:
                await wait_for_drain_change(
                    context, observed, inputs_changed, result.next_change_at, event.starts, *change_times
                )
    context.update_state(drain=None)
    return False


def _has_changed(
    context: NodeClaimContext,
    key: str,
    event: Event,
    blocked_pods: tuple[PodDrainRule, ...],
    decision_at: datetime | None,
) -> bool:
    return (
        next_decision_at(context.state, context.now) != decision_at
        or _find_requested_event(context, key) != event
        or pods_blocked_by_event(context.state, event, context.now) != blocked_pods
    )


def _find_requested_event(context: NodeClaimContext, key: str) -> Event | None:
    """The event if it still requires a stop, and no other event requires a drain."""
    if context.is_deleting:
        return None
    found = [one for one in live_events(context.state) if decide_event(context.state, one, context.now).do != "nothing"]
    actions = {one.key: decide_event(context.state, one, context.now).do for one in found}
    if any(action in ("drain", "terminate") for action in actions.values()) or actions.get(key) != "stop":
        return None
    return next(one for one in found if one.key == key)


async def _stop_or_start_instance(context: NodeClaimContext, stop: InstanceStopStart) -> bool:
    """False if the call failed; the node is drained then."""
    context.set_blocked_by(
        "its instance is stopped for maintenance" if stop.step == "stop" else "its instance is started again",
        STOP_START,
    )
    activity = InstanceActivities.stop_instance if stop.step == "stop" else InstanceActivities.start_instance
    options = {
        **with_summary(TERMINATE, f"{stop.step} the instance"),
        "schedule_to_close_timeout": _remaining_time(context, stop.deadline),
    }
    try:
        result: StopStartResult = await workflow.execute_activity_method(activity, context.nodeclaim_ref, **options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        result = StopStartResult(outcome="unfit", why=str(error.cause or error)[:200])
    if result.outcome != "done":
        await _fail_stop_start(context, result.why)
        return False
    _update_step(context, step="start" if stop.step == "stop" else "back")
    return True


def _remaining_time(context: NodeClaimContext, deadline: datetime | None) -> Any:
    return max(deadline - context.now, MIN_POLL_TIMEOUT) if deadline else None


async def _wait_for_reboot(context: NodeClaimContext, stop: InstanceStopStart) -> bool:
    """False if the decision must be made again, for example because another AWS event ends the instance."""
    context.set_blocked_by("its instance boots after maintenance", STOP_START)
    decision_at = next_decision_at(context.state, context.now)
    await context.wait(
        lambda: (
            _has_rebooted(context, stop)
            or must_drain(context)
            or next_decision_at(context.state, context.now) != decision_at
        ),
        until=min((one for one in (stop.deadline, decision_at) if one), default=None),
        summary="until its instance is back",
    )
    if not _has_rebooted(context, stop):
        if not must_drain(context) and stop.deadline is not None and context.now >= stop.deadline:
            await _fail_stop_start(context, "its instance did not come back in time")
        return False
    context.update_state(
        interruptions=record_done(context.state.interruptions, stop.key),
        reboots=context.state.reboots + 1,
        stop=stop.model_copy(update={"step": "done", "until": context.now}),
    )
    await _return_to_service(context, RETURNED_MESSAGE)
    context.publish_status()
    return True


def _has_rebooted(context: NodeClaimContext, stop: InstanceStopStart) -> bool:
    boot_id = context.state.observed.boot_id
    return bool(boot_id) and boot_id != stop.boot_id


async def _fail_stop_start(context: NodeClaimContext, why: str) -> None:
    """Record the failure, after which `tenure/policy/interruption/decision.py` decides to drain the node."""
    context.set_blocked_by(f"stop and start failed: {why}", "StopStartFailed")
    _update_step(context, step="failed", until=context.now)


async def _return_to_service(context: NodeClaimContext, why: str) -> None:
    """Make the node schedulable, unless it is being deleted."""
    request = CancelDrainRequest(claim=context.nodeclaim_ref, why=why, event="StopStartOver")
    await workflow.execute_activity_method(
        DrainActivities.uncordon_node, request, **with_summary(PATCH, "return the node to service")
    )
    context.update_state(waits_until=None, blocked_by="", out_of_service=False)
