"""AWS events of a node's instance: records, reports and actions.

`tenure/policy/interruption/decision.py` decides. The workflow's memo has the events for `tenure events`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from temporalio import workflow

from activities.interruption.activities import NodeInterruptionActivities
from tenure.model.base import Value
from tenure.model.disruption.drain import DrainState, PodDrainRule
from tenure.model.interruption.messages import InterruptionMessage, InterruptionMessages
from tenure.model.interruption.records import MEMO, EventRecord, InterruptionNotification
from tenure.model.nodeclaim.state import TERMINATING_PHASES, NodeClaimState, Phase
from tenure.policy.interruption.decision import (
    ACTING,
    InterruptionDecision,
    decide_event,
    decide_interruption,
    draining_event,
    maintenance_until,
    next_decision_at,
    overrides_do_not_disrupt,
    pods_blocked_by_event,
    superseding_interruption,
)
from tenure.policy.interruption.event_texts import (
    condition_changes,
    due_event_texts,
    event_records,
    maintenance_conditions,
    published_versions,
)
from tenure.policy.interruption.events import end_stopping_events, format_annotation, record_messages, restore_messages
from workflows import metrics
from workflows.activity_options import REPORT, drain_queue_options, with_summary
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.failure import delete_nodeclaim

_PHASES = (Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY, Phase.DRAIN)


def record_interruption_messages(context: NodeClaimContext, messages: InterruptionMessages) -> None:
    """Messages about another instance, and about a stop that Tenure requested, are ignored."""
    launched = context.state.launched
    if launched is None or launched.provider_id.endswith(f"/{messages.instance_id}"):
        relevant = [one for one in messages.messages if not _is_own_stop(context.state, one)]
        updated = record_messages(context.state.interruptions, relevant, workflow.now())
        if updated != context.state.interruptions:
            context.update_state(interruptions=updated)
            end_recovered_stops(context)
        context.record_evicted_pods(messages.evicted_pods)


def end_recovered_stops(context: NodeClaimContext) -> None:
    """End stop events of a node that became Ready after its instance stopped."""
    state = context.state
    if state.interruptions and state.observed.node_ready:
        context.update_state(interruptions=end_stopping_events(state.interruptions, state.observed.ready_since))


def _is_own_stop(state: NodeClaimState, message: InterruptionMessage) -> bool:
    stop = state.stop
    if message.kind != "instanceStopping" or stop is None or stop.step == "drain":
        return False
    return message.at >= stop.since and (stop.until is None or message.at <= stop.until)


def recover_interruption_messages(context: NodeClaimContext, text: str) -> None:
    """Restore the events from the NodeClaim's annotation."""
    if text:
        context.update_state(
            interruptions=restore_messages(text, context.state.interruptions), interruptions_annotation=text
        )


def decide_for_starting_node(context: NodeClaimContext) -> InterruptionDecision:
    """A starting node runs no pods, so it needs no permit."""
    decision = decide_interruption(context.state, context.now)
    return decision if decision.do in ("drain", "terminate", "wait") else InterruptionDecision()


def requires_drain(decision: InterruptionDecision) -> bool:
    return decision.do in ("drain", "terminate")


def must_drain(context: NodeClaimContext) -> bool:
    """Whether the NodeClaim is being deleted, or an AWS event requires a drain. A call that may take as long as the API
    server or EC2 does not respond ends then."""
    return context.is_deleting or requires_drain(decide_interruption(context.state, context.now))


def watch_interruption_decision(context: NodeClaimContext) -> Callable[[], bool]:
    """Whether the decision for a starting node, or the time of the next one, has changed since this call."""
    known = decide_for_starting_node(context), next_decision_at(context.state, context.now)
    return lambda: (decide_for_starting_node(context), next_decision_at(context.state, context.now)) != known


async def disrupt_for_interruption(context: NodeClaimContext) -> Phase:
    """Start the drain. It deletes the NodeClaim immediately, or at its end if a policy lets pods wait."""
    decision = decide_interruption(context.state, context.now)
    context.update_state(disruption=decision.reason, interrupted=decision.key)
    if context.state.phase is Phase.REGISTRATION:
        await delete_nodeclaim(context, reason=decision.reason)
        return Phase.TERMINATION
    if decision.do == "terminate":
        await delete_nodeclaim(context, reason=decision.reason, at_once=True)
    context.update_state(drain=DrainState(defers_deletion=True) if event_drain_options(context).blocked_pods else None)
    return Phase.DRAIN


def has_unreported_events(state: NodeClaimState) -> bool:
    if not (state.interruptions or state.interruptions_annotation or state.node_conditions):
        return False
    if state.phase not in _PHASES or not state.observed.exists or is_about_to_drain(state):
        return False
    return _is_unwritten(state) or bool(due_event_texts(state, workflow.now()) or condition_changes(state))


def is_about_to_drain(state: NodeClaimState) -> bool:
    """An event requires a drain that has not started. After its start, all events are reported together."""
    return (
        not state.interrupted
        and state.phase not in TERMINATING_PHASES
        and requires_drain(decide_interruption(state, workflow.now()))
    )


def _is_unwritten(state: NodeClaimState) -> bool:
    """Whether the annotation differs from the state. It is not updated during a drain, where it has no use."""
    if state.phase is Phase.DRAIN:
        return False
    return (format_annotation(state.interruptions), maintenance_until(state)) != (
        state.interruptions_annotation,
        state.maintenance_until,
    )


async def write_interruption_events(context: NodeClaimContext) -> None:
    """Publish the Kubernetes events and write the annotation, without the annotation if a drain is due."""
    state, now = context.state, context.now
    write = _is_unwritten(state) and not requires_drain(decide_interruption(state, now))
    event_texts, reported_texts = due_event_texts(state, now), published_versions(state, now)
    request = InterruptionNotification(
        claim=context.nodeclaim_ref,
        events=tuple(event_texts.values()),
        write=write,
        text=format_annotation(state.interruptions),
        maintenance_until=maintenance_until(state),
        node_conditions=condition_changes(state),
    )
    if event_texts or write or request.node_conditions:
        await workflow.execute_activity_method(
            NodeInterruptionActivities.publish_interruption_events, request, **_publish_options(state)
        )
    for topic in event_texts:
        if topic.endswith("|status"):
            metrics.count_event(state, topic.partition("|")[0].partition("@")[0])
    context.update_state(
        published_event_versions=reported_texts,
        interruptions_annotation=request.text,
        maintenance_until=request.maintenance_until,
        node_conditions=maintenance_conditions(state),
    )


def _publish_options(state: NodeClaimState) -> Any:
    """Hundreds of nodes may drain at the same time, so their reports use the task queue of the drains."""
    options = with_summary(REPORT, "report AWS events")
    return drain_queue_options(options, state, options["summary"]) if state.interrupted else options


# --- in a drain for an event ---


class EventDrainOptions(Value):
    """Options of a drain for an AWS event that other drains do not have."""

    blocked_pods: tuple[PodDrainRule, ...] = ()
    override: bool = False

    @property
    def blocked_until(self) -> datetime | None:
        return min((one.until for one in self.blocked_pods if one.blocked and one.until), default=None)


def event_drain_options(context: NodeClaimContext) -> EventDrainOptions:
    event = draining_event(context.state)
    if event is None:
        return EventDrainOptions()
    return EventDrainOptions(
        blocked_pods=pods_blocked_by_event(context.state, event, context.now),
        override=overrides_do_not_disrupt(context.state),
    )


def drain_cancellation_reason(context: NodeClaimContext) -> str:
    """Why a drain that has not deleted its NodeClaim is cancelled; empty if it continues."""
    state = context.state
    if not state.interrupted or state.drain is None or not state.drain.defers_deletion or draining_event(state):
        return ""
    return "AWS cancelled the event for which the node was drained"


def ignores_pauses_and_budgets(context: NodeClaimContext) -> bool:
    """Whether the node drains for an AWS event to which pauses and budgets do not apply."""
    event = draining_event(context.state)
    return event is not None and decide_event(context.state, event, context.now).do in ACTING


def is_superseded(context: NodeClaimContext) -> bool:
    return superseding_interruption(context.state, context.now) is not None


async def switch_to_superseding_event(context: NodeClaimContext) -> None:
    """Continue the drain for the more urgent event. The disruption reason does not change."""
    decision = superseding_interruption(context.state, context.now)
    assert decision is not None
    if decision.do == "terminate":
        # Before the state is updated, so that the drain repeats this step if the deletion fails.
        await delete_nodeclaim(context, reason=decision.reason, at_once=True)
    context.update_state(interrupted=decision.key)


def end_deferral_if_unblocked(context: NodeClaimContext) -> None:
    """If no pods wait any longer, let the drain delete the NodeClaim without deferral."""
    drain = context.state.drain
    if (
        drain
        and drain.defers_deletion
        and ignores_pauses_and_budgets(context)
        and not event_drain_options(context).blocked_pods
    ):
        context.update_state(drain=drain.model_copy(update={"defers_deletion": False}))


_EVENT_RECORDS = TypeAdapter(tuple[EventRecord, ...])


def has_new_event_records(state: NodeClaimState) -> bool:
    """False while a drain is about to start, so that the memo is written once for both."""
    if not state.interruptions or is_about_to_drain(state):
        return False
    recorded = _recorded_events()
    return event_records(state, recorded, workflow.now()) != recorded


async def store_event_records(context: NodeClaimContext) -> None:
    """Write the records to the memo, where `tenure events` reads them."""
    records = event_records(context.state, _recorded_events(), workflow.now())
    workflow.upsert_memo({MEMO: _EVENT_RECORDS.dump_python(records, mode="json", exclude_defaults=True)})


def _recorded_events() -> tuple[EventRecord, ...]:
    return _EVENT_RECORDS.validate_python(workflow.memo_value(MEMO, []))
