"""Reports about a NodeClaim: its conditions, annotations, events and memo, sent by one background task.

A phase changes the workflow's state and continues. The outbox compares the state with the last reports, sends the
differences, and retries failures. The state includes both, so a run that continues as new sends all unsent reports.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, RetryState, is_cancelled_exception

from activities.disruption import DisruptionActivities
from tenure.model.nodeclaim.requests import ReportRequest
from tenure.model.nodeclaim.state import NodeClaimState
from workflows.activity_options import REPORT, with_summary
from workflows.nodeclaim_context import NodeClaimContext
from workflows.timers import wait_at_most

RETRY_AFTER = timedelta(minutes=2)
"""Delay after an activity has failed with all its attempts."""
FLUSH_TIMEOUT = timedelta(minutes=2)
"""How long the end of the workflow waits for reports. The attempt of a killed worker is retried after 45 s."""
CONDITION_TIMEOUT = timedelta(minutes=1)


@dataclass(frozen=True)
class Report:
    """`send` must record in the state that the report is sent, so that `is_due` becomes false. Raises ActivityError."""

    subject: str
    is_due: Callable[[NodeClaimState], bool]
    send: Callable[[NodeClaimContext], Awaitable[None]]


class Outbox:
    def __init__(self, context: NodeClaimContext, reports: Sequence[Report]) -> None:
        """`reports`: the first that is due is sent first."""
        self._context, self._reports = context, reports
        self._failed: list[Report] = []
        self._retry_at: datetime | None = None
        self.is_sending = False

    async def run(self) -> None:
        """Send reports until cancelled. A node without reports costs no history event."""
        while True:
            await self._wait_until_due()
            report = self._next_report()
            if report is not None:
                await self._send(report)

    async def flush(self) -> None:
        """Send the due reports before the workflow ends, for at most FLUSH_TIMEOUT."""
        await wait_at_most(FLUSH_TIMEOUT, lambda: not self._has_work(), "the last reports")

    def _has_work(self) -> bool:
        return self.is_sending or any(report.is_due(self._context.state) for report in self._reports)

    def _next_report(self) -> Report | None:
        due = (report for report in self._reports if report.is_due(self._context.state))
        return next((report for report in due if report not in self._failed), None)

    async def _wait_until_due(self) -> None:
        """Wait until a report is due. Failed reports wait until `_retry_at`, without delaying the others."""
        timeout = max(self._retry_at - workflow.now(), timedelta(0)) if self._retry_at else None
        try:
            await workflow.wait_condition(
                lambda: self._next_report() is not None,
                timeout=timeout,
                timeout_summary=f"before another attempt to report {self._failed[0].subject}" if self._failed else None,
            )
        except TimeoutError:
            self._failed, self._retry_at = [], None

    async def _send(self, report: Report) -> None:
        self._context.publish_status()
        self.is_sending = True
        try:
            await report.send(self._context)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self._failed.append(report)
            self._retry_at = self._retry_at or workflow.now() + RETRY_AFTER
        finally:
            self.is_sending = False


def has_pending_events(state: NodeClaimState) -> bool:
    return bool(state.pending_events)


async def send_pending_event(context: NodeClaimContext) -> None:
    """Send the oldest event. An event that the API server rejects is dropped, so that it does not block later ones."""
    request = context.state.pending_events[0]
    try:
        await _publish(request)
    except ActivityError as error:
        if error.retry_state is not RetryState.NON_RETRYABLE_FAILURE:
            raise
    context.update_state(pending_events=tuple(one for one in context.state.pending_events if one is not request))


async def write_condition(
    context: NodeClaimContext, condition: str, *, reason: str, message: str, status: str = "Unknown"
) -> bool:
    """Write a condition that a later activity of the same phase sets to True; False if it failed.

    The phase waits for this, at most CONDITION_TIMEOUT. From the outbox, it could overwrite the later value.
    """
    request = ReportRequest(
        claim=context.nodeclaim_ref, condition=condition, status=status, reason=reason, message=message
    )
    try:
        await _publish(request, schedule_to_close_timeout=CONDITION_TIMEOUT)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return False
    return True


async def _publish(request: ReportRequest, **options: timedelta) -> None:
    summary = f"report {request.event or request.reason}"
    await workflow.execute_activity_method(
        DisruptionActivities.publish_event, request, **{**with_summary(REPORT, summary), **options}
    )
