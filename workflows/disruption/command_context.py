"""Context of one disruption command: its state, its permits, and operations that its steps use.

`command.py` creates one per run and passes it to every step. Signal handlers only replace `state`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from temporalio import workflow
from temporalio.workflow import ActivityCancellationType

from tenure.model.disruption.commands import (
    CommandFinished,
    CommandLaunched,
    CommandRequest,
    CommandResult,
    CommandState,
    Ending,
    Step,
)
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.signals import PermitRelease, PermitRequest
from tenure.policy.disruption.commands import (
    BEGINS_WITHIN,
    DEADLINES,
    candidates_to_request,
    is_permit_request_due,
    permit_renewal_at,
)
from workflows import current_details, ids, visibility
from workflows.activity_options import COMMAND, is_continue_as_new_due, try_signal, with_summary
from workflows.timers import time_until

T = TypeVar("T")
OPERATOR_CANCELLED: Final = "an operator cancelled it"
CommandActivity = Callable[[Any, CommandRequest], Awaitable[CommandResult]]


class ContinueAsNewRequested(Exception):
    """Raised by `wait_until`: the run continues as new with its current state."""


class Command:
    def __init__(self, state: CommandState) -> None:
        self.state = state

    def update_state(self, **fields: object) -> None:
        self.state = self.state.model_copy(update=fields)

    def start_run(self) -> None:
        """Initialize a new command, and publish the details of every run."""
        if self.state.created_at is None:
            self.update_state(created_at=workflow.now(), plan_id=workflow.uuid4().hex[:12])
            self.transition_to(self.state.step)
        self._set_current_details()

    def transition_to(self, step: Step) -> None:
        """A repeated step keeps its start time. All rounds of Wait and Finish share one deadline."""
        before = self.state
        if step == before.step and before.since is not None:
            return
        now = workflow.now()
        deadline = now + DEADLINES[step] if step in DEADLINES else None
        if step in ("Wait", "Finish"):
            deadline = before.ready_by
        self.update_state(
            step=step, since=now, deadline=deadline, blocked_by=before.blocked_by if step == "Wait" else ""
        )
        self._publish_status()

    def set_blocked_by(self, why: str) -> None:
        """Publish what the command waits for."""
        if why != self.state.blocked_by:
            self.update_state(blocked_by=why)
            self._publish_status()

    def record_ending(self, ending: Ending, why: str = "", *, nodes: Iterable[str] = (), outage: bool = False) -> None:
        """Record the ending. A later ending does not replace it."""
        finished = CommandFinished(
            proposal_id=self.state.proposal.id, ending=ending, why=why[:300], nodes=tuple(nodes), outage=outage
        )
        self.update_state(
            over=(self.state.over or finished).model_copy(update={"retain_until": self.state.retain_until})
        )

    def stop_with(self, ending: Ending, why: str, *, nodes: Iterable[str] = (), outage: bool = False) -> Step:
        """Record the ending, and continue with the rollback."""
        self.record_ending(ending, why, nodes=nodes, outage=outage)
        return "Undo"

    def is_past_deadline(self) -> bool:
        deadline = self.state.deadline
        return deadline is not None and workflow.now() >= deadline

    async def execute_on_candidates(
        self, activity: CommandActivity, summary: str, *, until: datetime | None, stoppable: bool = False
    ) -> CommandResult:
        """Run one activity on all candidates, with retries until `until`, or without limit.

        `stoppable`: cancel the activity when the command is cancelled. Raises ActivityError.
        """
        state = self.state
        request = CommandRequest(
            workflow_id=workflow.info().workflow_id,
            reason=state.proposal.reason,
            candidates=state.proposal.candidates,
            replacements=state.claims,
            why=state.over.why if state.over else state.proposal.why,
        )
        bound = {"schedule_to_close_timeout": max(until - workflow.now(), timedelta(seconds=1))} if until else {}
        options = {**with_summary(COMMAND, summary), **bound}
        if stoppable:
            # A running attempt must not delete a node while the rollback restores it.
            options["cancellation_type"] = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        handle: workflow.ActivityHandle[CommandResult] = workflow.start_activity_method(activity, request, **options)
        if not stoppable:
            return await self.wait_for_result(handle)
        cancel_task = asyncio.create_task(self._cancel_when_revoked(handle))
        try:
            result = await handle
        finally:
            cancel_task.cancel()
        return result

    async def wait_for_result(self, handle: workflow.ActivityHandle[T]) -> T:
        """Wait for the end of an activity although the workflow is cancelled meanwhile, and record the cancellation.
        Otherwise an attempt that still runs would change nodes after the rollback. Raises ActivityError."""
        try:
            return await asyncio.shield(handle)
        except asyncio.CancelledError:
            self.update_state(revocation=self.state.revocation or OPERATOR_CANCELLED)
            return await handle

    async def _cancel_when_revoked(self, handle: workflow.ActivityHandle[CommandResult]) -> None:
        await workflow.wait_condition(lambda: bool(self.state.revocation))
        handle.cancel()

    async def wait_until(self, happened: Callable[[], bool], at: datetime | None, summary: str) -> None:
        """Wait until `happened`, a cancellation, the time `at` or the deadline of the step. Raises
        ContinueAsNewRequested."""
        until = min((one for one in (at, self.state.deadline) if one), default=None)
        if until is not None and until <= workflow.now():
            return
        if is_continue_as_new_due():
            raise ContinueAsNewRequested
        try:
            await workflow.wait_condition(
                lambda: happened() or bool(self.state.revocation) or is_continue_as_new_due(),
                timeout=time_until(until) if until else None,
                timeout_summary=summary if until else None,
            )
        except TimeoutError:
            return

    async def request_permits(self) -> str:
        """Request or renew permits when due. Returns a NodePool without a running workflow; empty if all have one."""
        if not is_permit_request_due(self.state, workflow.now()):
            return ""
        candidates = candidates_to_request(self.state)
        self.update_state(permits_renewed_at=workflow.now())
        delivered = await asyncio.gather(*(self._request_permit(one) for one in candidates))
        return next((one.pool for one, is_delivered in zip(candidates, delivered, strict=True) if not is_delivered), "")

    async def _request_permit(self, one: CommandCandidate) -> bool:
        request = PermitRequest(
            claim_name=one.claim,
            claim_uid=one.claim_uid,
            workflow_id=workflow.info().workflow_id,
            reason=self.state.proposal.reason,
            since=self.state.created_at or workflow.now(),
            begins_within=BEGINS_WITHIN,
        )
        return await try_signal(ids.nodepool(self.state.cluster, one.pool), "request_permit", request)

    async def release_permits(self, *, used: bool = False) -> None:
        """Release all permits and withdraw all requests. `used`: the nodes are being deleted."""
        await asyncio.gather(*(self._release_permit(one, used) for one in self.state.proposal.candidates))

    async def _release_permit(self, one: CommandCandidate, used: bool) -> None:
        who = workflow.info().workflow_id
        release = PermitRelease(claim_uid=one.claim_uid, workflow_id=who, used=used)
        await try_signal(ids.nodepool(self.state.cluster, one.pool), "release_permit", release)

    async def signal_cluster(self, signal: str, message: CommandFinished | CommandLaunched) -> None:
        await try_signal(ids.cluster(self.state.cluster), signal, message)

    def next_renewal_at(self) -> datetime | None:
        return permit_renewal_at(self.state)

    def _publish_status(self) -> None:
        workflow.upsert_search_attributes(visibility.command_attributes(self.state))
        self._set_current_details()

    def _set_current_details(self) -> None:
        workflow.set_current_details(current_details.render_command(self.state))
