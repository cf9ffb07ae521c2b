"""Overdue: written to the NodeClaim beside the phase that the node is in, and taken off when it is so no more.

Only where the node is kept: what else follows a deadline ends the NodeClaim, with an event of its own. A life in which
no deadline passes has no event of this.

What is written of a node beside the phase that it is in: its drift, its absences, that it is overdue.

Each is a task for as long as the run lasts (`nodeclaim.py`), and has no event while there is nothing new to say.

Away: when an initialized node was NotReady, or under a taint that passes, is counted and written to its NodeClaim.

Beside the phase that the node is in. Planning reads it there, so that the grace of a node that comes and goes is used
up and not begun anew; a node that stays has no event of this.

Drifted: what the watch finds of a node's drift is written to its NodeClaim, beside the phase that the node is in.

From registration to ready. Nothing is disrupted for it here, and a life without drift has no event of this.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from activities.nodeclaim.annotations import NotReadyActivities
from tenure.apis import labels
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
from tenure.policy.lifecycle.deadlines import describe_blocker, is_alarmed
from workflows.activity_options import PATCH, with_summary
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.failure import nodeclaim_ref

RETRY_AFTER = timedelta(minutes=5)
"""After a fault that no retry helps."""
FLUSH_TIMEOUT = timedelta(minutes=2)
"""A try that is lost with its worker comes again after 45 s."""


async def write_on_change(
    context: NodeClaimContext,
    has_changes: Callable[[NodeClaimState], bool],
    write: Callable[[NodeClaimContext], Awaitable[None]],
    *,
    subject: str,
) -> None:
    """Write whenever there is news; what was written has to make it none. The run does not roll over meanwhile."""
    while True:
        await workflow.wait_condition(lambda: has_changes(context.state))
        context.publish_status()
        context.pending_writes += 1
        written = await _try_write(context, write)
        context.pending_writes -= 1
        if not written:
            await workflow.sleep(RETRY_AFTER, summary=f"before writing of {subject} again")


async def flush_pending_writes(context: NodeClaimContext) -> None:
    """What is just being written comes to its end, before the life does."""
    if context.pending_writes:
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: not context.pending_writes, timeout=FLUSH_TIMEOUT, timeout_summary="last words"
            )


async def _try_write(context: NodeClaimContext, write: Callable[[NodeClaimContext], Awaitable[None]]) -> bool:
    try:
        await write(context)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return False
    return True


async def report_overdue(context: NodeClaimContext) -> None:
    """For as long as the run lasts: whenever it is overdue, or no more, say so."""
    await workflow.wait_condition(lambda: _is_overdue_unreported(context.state))
    await write_on_change(context, _is_overdue_unreported, _write_overdue, subject="the deadline")


async def enforce_changed_deadline(context: NodeClaimContext) -> None:
    """A deadline that a LifecyclePolicy moves while an activity runs is kept all the same; waits look themselves."""
    while True:
        await workflow.wait_condition(lambda: context.is_executing_activity and context.deadline_changed)
        context.deadline_changed = False
        if context.state.deadline is not None and not context.state.overdue:
            await _wait_for_changed_deadline(context, context.state.deadline - context.now)
            if context.is_executing_activity and context.is_past_deadline():
                context.mark_overdue()


async def _wait_for_changed_deadline(context: NodeClaimContext, remaining: timedelta) -> None:
    if remaining > timedelta(0):
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: context.deadline_changed or not context.is_executing_activity or context.state.overdue,
                timeout=remaining,
                timeout_summary="the deadline that was moved",
            )


def _is_overdue_unreported(state: NodeClaimState) -> bool:
    if state.phase is Phase.DELETED or not state.observed.exists:
        return False
    return state.notified_overdue is not _overdue_phase(state)


def _overdue_phase(state: NodeClaimState) -> Phase | None:
    return state.phase if is_alarmed(state) else None


async def _write_overdue(context: NodeClaimContext) -> None:
    state = context.state
    phase = _overdue_phase(state)
    report = ReportRequest(claim=nodeclaim_ref(context), condition=labels.OVERDUE, status="")
    if phase:
        since, until = (at.isoformat(timespec="seconds") if at else "-" for at in (state.since, state.deadline))
        message = f"in {phase.value} since {since}, deadline {until}; {describe_blocker(state)}"
        report = report.model_copy(
            update={
                "status": "True",
                "reason": phase.value,
                "message": message,
                "event": f"{phase.value}Overdue",
            }
        )
    summary = f"say that {phase.value} is overdue" if phase else "say that it is overdue no more"
    await workflow.execute_activity_method(DisruptionActivities.publish_event, report, **with_summary(PATCH, summary))
    context.update_state(notified_overdue=phase)


NOT_READY = "NotReady"
_PHASES = (Phase.INITIALIZATION, Phase.READY)


def record_not_ready_interval(context: NodeClaimContext, observed: ObservedNodeClaim) -> None:
    """Take into the record what the watch sees now, beside what it saw last: `context.state.observed`. A node that is
    going is
    away for good, which is no flap."""
    intervals = context.state.not_ready_intervals
    if observed.deleting or not observed.exists or not observed.node_name:
        return
    if observed.not_ready_since and ongoing_since(intervals) is None:
        context.update_state(
            not_ready_intervals=begin_interval(intervals, observed.not_ready_since), flaps=context.state.flaps + 1
        )
    elif observed.not_ready_since is None and ongoing_since(intervals):
        context.update_state(not_ready_intervals=_end_not_ready_interval(context, intervals, observed))


def recover_not_ready_intervals(context: NodeClaimContext, known: tuple[NotReadyInterval, ...]) -> None:
    """Of a life that is begun anew: what its NodeClaim says of the time before; and its end, if the node is back."""
    intervals, observed = merge_intervals(known, context.state.not_ready_intervals), context.state.observed
    if observed.node_name and observed.not_ready_since is None and ongoing_since(intervals):
        intervals = _end_not_ready_interval(context, intervals, observed)
    context.update_state(
        not_ready_intervals=intervals, notified_intervals=format_intervals(known), flaps=len(intervals)
    )


def _end_not_ready_interval(
    context: NodeClaimContext, known: tuple[NotReadyInterval, ...], observed: ObservedNodeClaim
) -> tuple[NotReadyInterval, ...]:
    """The watch may tell late that it is Ready again, and then says since when; that a taint went it sees, or not."""
    ready_since, not_ready_since = observed.ready_since, ongoing_since(known)
    is_late = (
        NOT_READY in context.state.observed.not_ready_reason
        and ready_since
        and not_ready_since
        and ready_since > not_ready_since
    )
    return end_interval(known, ready_since if is_late and ready_since else context.now)


async def report_not_ready_intervals(context: NodeClaimContext) -> None:
    """For as long as the run lasts: whenever there is more to say than was written, write that."""
    await write_on_change(context, _is_not_ready_unreported, _write_not_ready_intervals, subject="absences")


def _is_not_ready_unreported(state: NodeClaimState) -> bool:
    is_observable = state.phase in _PHASES and state.observed.exists and not state.observed.deleting
    return is_observable and format_intervals(state.not_ready_intervals) != state.notified_intervals


async def _write_not_ready_intervals(context: NodeClaimContext) -> None:
    intervals = context.state.not_ready_intervals
    request = NotReadyNotification(claim=nodeclaim_ref(context), not_ready_intervals=intervals)
    summary = "write down that it is away" if ongoing_since(intervals) else "write down that it is back"
    await workflow.execute_activity_method(
        NotReadyActivities.record_not_ready_intervals, request, **with_summary(PATCH, summary)
    )
    context.update_state(notified_intervals=format_intervals(intervals))


_DRIFT_PHASES = (Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY)


async def report_drift(context: NodeClaimContext) -> None:
    """For as long as the run lasts: whenever the watch says something else than what was written, write that."""
    await write_on_change(context, _is_drift_unreported, _write_drift, subject="drift")


def _is_drift_unreported(state: NodeClaimState) -> bool:
    """A node that is going is judged no more, so what its NodeClaim says of drift stays as it is."""
    observed = state.observed
    is_observable = state.phase in _DRIFT_PHASES and observed.exists and not observed.deleting
    return is_observable and (observed.drift, observed.drift_message) != (state.drift, state.drift_message)


async def _write_drift(context: NodeClaimContext) -> None:
    observed = context.state.observed
    is_same_drift = observed.drift == context.state.drift
    report = ReportRequest(
        claim=nodeclaim_ref(context),
        condition=labels.DRIFTED,
        status="True" if observed.drift else "",
        reason=observed.drift,
        message=observed.drift_message,
        event=observed.drift if not is_same_drift else "",
    )
    summary = f"say that it drifted: {observed.drift}" if observed.drift else "say that it has not drifted"
    await workflow.execute_activity_method(DisruptionActivities.publish_event, report, **with_summary(PATCH, summary))
    context.update_state(drift=observed.drift, drift_message=observed.drift_message)
