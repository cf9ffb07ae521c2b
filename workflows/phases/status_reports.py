"""Reports of the node's status: verdicts that need an operator, NotReady intervals and drift.

Without a change of one of these, a node costs no history event.
"""

from temporalio import workflow

from activities.disruption import DisruptionActivities
from activities.nodeclaim.annotations import AnnotationActivities
from tenure.apis import labels
from tenure.model.blockers import Verdict
from tenure.model.node_health import (
    NotReadyInterval,
    begin_interval,
    end_interval,
    format_intervals,
    merge_intervals,
    ongoing_since,
)
from tenure.model.nodeclaim.requests import NotReadyNotification, ReportRequest
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.observations import ObservedNodeClaim
from tenure.policy.lifecycle.missing_nodes import describe_missing_node, is_node_missing
from tenure.policy.lifecycle.verdict import verdict_of
from workflows.activity_options import REPORT, with_summary
from workflows.nodeclaim_context import NodeClaimContext


def is_attention_unreported(state: NodeClaimState) -> bool:
    if state.phase is Phase.DELETED or not state.observed.exists:
        return False
    return state.reported_attention != _attention_message(state)


async def write_attention(context: NodeClaimContext) -> None:
    """The condition NeedsAttention of the NodeClaim and its Node, and an event for each new message. An overdue phase
    has an event of its own, once."""
    state = context.state
    verdict, message = _attention_verdict(state), _attention_message(state)
    was_reported = state.overdue and state.reported_attention.startswith(_overdue_since(state))
    report = ReportRequest(
        claim=context.nodeclaim_ref,
        condition=labels.NEEDS_ATTENTION,
        status="True" if verdict else "",
        reason=verdict.code if verdict else "",
        message=message,
        event=_attention_event(state) if verdict and not was_reported else "",
        on_node=True,
    )
    summary = f"report that it needs attention: {verdict.code}" if verdict else "report that it needs no attention"
    await workflow.execute_activity_method(DisruptionActivities.publish_event, report, **with_summary(REPORT, summary))
    context.update_state(reported_attention=message)


def _attention_event(state: NodeClaimState) -> str:
    return f"{state.phase.value}Overdue" if state.overdue else "NeedsAttention"


def _attention_verdict(state: NodeClaimState) -> Verdict | None:
    verdict = verdict_of(state)
    return verdict if verdict and not verdict.clears_by_itself else None


def _attention_message(state: NodeClaimState) -> str:
    """Empty if the node needs no attention."""
    verdict = _attention_verdict(state)
    if verdict is None or not state.overdue:
        return verdict.sentence if verdict else ""
    deadline = state.deadline.isoformat(timespec="seconds") if state.deadline else "-"
    return f"{_overdue_since(state)}, deadline {deadline}; {verdict.sentence}"


def _overdue_since(state: NodeClaimState) -> str:
    return f"in {state.phase.value} since {state.since.isoformat(timespec='seconds') if state.since else '-'}"


NOT_READY = "NotReady"
_PHASES = (Phase.INITIALIZATION, Phase.READY)


def record_not_ready_interval(context: NodeClaimContext, observed: ObservedNodeClaim) -> None:
    """Begin or end a NotReady interval. Call this before `observed` is stored in the state.

    No interval begins or ends while the NodeClaim is being deleted.
    """
    intervals = context.state.not_ready_intervals
    is_known = observed.node_name or observed.not_ready_since
    if observed.deleting or not observed.exists or not is_known:
        return
    if observed.not_ready_since and ongoing_since(intervals) is None:
        context.update_state(
            not_ready_intervals=begin_interval(intervals, observed.not_ready_since), flaps=context.state.flaps + 1
        )
    elif observed.not_ready_since is None and ongoing_since(intervals):
        context.update_state(not_ready_intervals=_end_not_ready_interval(context, intervals, observed))


def recover_not_ready_intervals(context: NodeClaimContext, known: tuple[NotReadyInterval, ...]) -> None:
    """Merge the intervals of the NodeClaim's annotation, and end an open one if the node is Ready."""
    intervals, observed = merge_intervals(known, context.state.not_ready_intervals), context.state.observed
    if observed.node_name and observed.not_ready_since is None and ongoing_since(intervals):
        intervals = _end_not_ready_interval(context, intervals, observed)
    context.update_state(
        not_ready_intervals=intervals, not_ready_annotation=format_intervals(known), flaps=len(intervals)
    )


def _end_not_ready_interval(
    context: NodeClaimContext, known: tuple[NotReadyInterval, ...], observed: ObservedNodeClaim
) -> tuple[NotReadyInterval, ...]:
    """End the interval when the condition Ready changed, if known; otherwise now. A taint's removal has no time."""
    ready_since, not_ready_since = observed.ready_since, ongoing_since(known)
    is_late = (
        NOT_READY in context.state.observed.not_ready_reason
        and ready_since
        and not_ready_since
        and ready_since > not_ready_since
    )
    return end_interval(known, ready_since if is_late and ready_since else context.now)


def is_not_ready_unreported(state: NodeClaimState) -> bool:
    is_observable = state.phase in _PHASES and state.observed.exists and not state.observed.deleting
    return is_observable and format_intervals(state.not_ready_intervals) != state.not_ready_annotation


async def write_not_ready_intervals(context: NodeClaimContext) -> None:
    intervals = context.state.not_ready_intervals
    request = NotReadyNotification(claim=context.nodeclaim_ref, not_ready_intervals=intervals)
    summary = "report that the node is NotReady" if ongoing_since(intervals) else "report that the node is Ready"
    await workflow.execute_activity_method(
        AnnotationActivities.record_not_ready_intervals, request, **with_summary(REPORT, summary)
    )
    context.update_state(not_ready_annotation=format_intervals(intervals))


def is_missing_node_unreported(state: NodeClaimState) -> bool:
    if not state.observed.exists or state.observed.deleting:
        return False
    message = describe_missing_node(state)
    return message != state.missing_reported and (bool(message) or not is_node_missing(state))


async def write_missing_node(context: NodeClaimContext) -> None:
    """The condition NodeMissing, on which Ready depends."""
    message = describe_missing_node(context.state)
    report = ReportRequest(
        claim=context.nodeclaim_ref,
        condition=labels.NODE_MISSING,
        status="True" if message else "",
        reason=labels.NODE_NOT_FOUND if message else "",
        message=message,
    )
    summary = "report that the Node is missing" if message else "report that the Node is back"
    await workflow.execute_activity_method(DisruptionActivities.publish_event, report, **with_summary(REPORT, summary))
    context.update_state(missing_reported=message)


_DRIFT_PHASES = (Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY)


def is_drift_unreported(state: NodeClaimState) -> bool:
    """The condition Drifted of a node that is being deleted does not change."""
    observed = state.observed
    is_observable = state.phase in _DRIFT_PHASES and observed.exists and not observed.deleting
    return is_observable and (observed.drift, observed.drift_message) != (state.drift, state.drift_message)


async def write_drift(context: NodeClaimContext) -> None:
    observed = context.state.observed
    is_same_drift = observed.drift == context.state.drift
    report = ReportRequest(
        claim=context.nodeclaim_ref,
        condition=labels.DRIFTED,
        status="True" if observed.drift else "",
        reason=observed.drift,
        message=observed.drift_message,
        event=observed.drift if not is_same_drift else "",
    )
    summary = f"report drift: {observed.drift}" if observed.drift else "report that it has not drifted"
    await workflow.execute_activity_method(DisruptionActivities.publish_event, report, **with_summary(REPORT, summary))
    context.update_state(drift=observed.drift, drift_message=observed.drift_message)
