"""The Cluster workflow: voluntary disruption of the whole cluster. It runs planner passes and starts commands.

There is one per cluster. It sleeps until the watch signals a change, or until a verdict expires. Each command is a
separate workflow (`command.py`) that continues when this one continues as new, and signals its result. A failed command
backs off. A failed pass is reported and retried.
"""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError, is_cancelled_exception
from temporalio.workflow import ParentClosePolicy

from activities.disruption import DisruptionActivities
from activities.planner_host import PlannerHostActivities
from tenure.model.disruption.commands import (
    ClosedCommands,
    ClusterChanged,
    CommandFinished,
    CommandLaunched,
    CommandRequest,
    CommandRun,
    CommandState,
    DisruptionDecision,
    DisruptionDecisionRequest,
    DisruptionState,
    InFlightCommand,
    PermitRevoked,
    Proposal,
)
from tenure.model.disruption.permits import ReservationRequest, ReservationResult
from tenure.model.operator_requests import PauseAnnotationRequest
from tenure.model.signals import PermitRelease
from tenure.policy.disruption.commands import (
    active_backoffs,
    cluster_blockers,
    end_outage_backoffs,
    lost_commands,
    next_pass,
    next_timed_pass_at,
    prune_backoffs,
    record_command_result,
    retry_pass_at,
    why_not_start,
)
from tenure.policy.disruption.permits import reservations_lapse_at, reserved_by_others, update_reservations
from workflows import current_details, ids, visibility
from workflows.activity_options import COMMAND, DECIDE, is_continue_as_new_due, try_signal, with_summary
from workflows.current_details import IgnoresCancellation, publish_details
from workflows.disruption.command import DisruptionWorkflow
from workflows.pausable import PausableCluster, PauseController
from workflows.timers import STOP_TIMEOUT, WakeupTimer, stop_background_tasks, wait_at_most

ROLL_BACK_TIMEOUT = timedelta(minutes=5)


@workflow.defn(name="Cluster")
class ClusterWorkflow(PausableCluster, IgnoresCancellation):
    how_to_stop = "scale the Deployment of the worker to zero; to stop disruption only, pause the cluster"

    @workflow.init
    def __init__(self, state: DisruptionState) -> None:
        self._state = state
        self._wakeup_timer = WakeupTimer()
        target = PauseAnnotationRequest(kind="Cluster", name=state.cluster)
        self._pause_controller = PauseController(
            lambda: target, lambda: self._state, self._update_state, on_changed=self._on_pause_changed
        )

    @workflow.run
    async def run(self, state: DisruptionState) -> None:
        pause_task = asyncio.create_task(self._pause_controller.run())
        try:
            while not is_continue_as_new_due():
                await self._run_cycle()
            await stop_background_tasks([pause_task], lambda: self._pause_controller.is_writing)
            await wait_at_most(STOP_TIMEOUT, workflow.all_handlers_finished, "the last response to a NodePool")
            workflow.continue_as_new(self._state)
        finally:
            pause_task.cancel()

    async def _run_cycle(self) -> None:
        self._set_current_details()
        await self._wait_for_change()
        if self._is_pass_due():
            await self._roll_back_lost_commands()
            await self._run_pass()

    def _on_pause_changed(self) -> None:
        """A pass is due after a resume."""
        if self._state.pause is None:
            self._update_state(has_changed=True)
        self._set_current_details()

    @workflow.signal(description="From the watch: a change that may affect voluntary disruption")
    def cluster_changed(self, change: ClusterChanged) -> None:
        """Another process that watches ends the backoff of failed passes, and of commands that failed by an outage."""
        if change.number <= self._state.change_number:
            return
        if change.watch != self._state.watch:
            backoffs = end_outage_backoffs(self._state.backoffs, workflow.now())
            self._update_state(watch=change.watch, faults=0, not_before=None, backoffs=backoffs)
        self._update_state(change_number=change.number, has_changed=True)

    @workflow.signal(description="From a command: its replacements are created")
    def command_launched(self, launched: CommandLaunched) -> None:
        """Record the replacements, so that no other command uses their capacity."""
        for one in self._state.under_way:
            if one.under_way.proposal.id == launched.proposal_id:
                under_way = one.under_way.model_copy(update={"claims": launched.claims})
                self._replace_command(launched.proposal_id, under_way=under_way)

    @workflow.signal(description="From a command: its result")
    def command_finished(self, finished: CommandFinished) -> None:
        """Remove the command, record its backoff, and schedule a pass."""
        state = self._state
        ended = [one for one in state.under_way if one.under_way.proposal.id == finished.proposal_id]
        remaining = tuple(one for one in state.under_way if one not in ended)
        backoffs = state.backoffs
        for one in ended:
            backoffs = record_command_result(backoffs, one.under_way.proposal, finished, workflow.now())
        self._update_state(under_way=remaining, backoffs=backoffs, has_changed=True)

    @workflow.signal(description="From the watch: commands whose workflow closed without a result")
    def commands_closed(self, message: ClosedCommands) -> None:
        """Schedule a pass that rolls them back. A later command for the same proposal continues."""
        for one in self._state.under_way:
            closed_at = message.closed.get(one.under_way.proposal.id)
            if closed_at and one.since <= closed_at:
                self._replace_command(one.under_way.proposal.id, closed=True)
                self._update_state(has_changed=True)

    @workflow.signal(description="From a NodePool: its reservations for permits")
    async def reserve_cluster_permit(self, request: ReservationRequest) -> None:
        """Replace the reservations of a NodePool. If it needs a response, send it the reservations of the others."""
        self._update_state(reservations=update_reservations(self._state.reservations, request, workflow.now()))
        if request.token:
            ledger = self._state.reservations
            response = ReservationResult(
                token=request.token,
                others=reserved_by_others(ledger, request.pool),
                until=reservations_lapse_at(ledger, request.pool),
            )
            await try_signal(request.workflow_id, "cluster_permit_decided", response)

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> DisruptionState:
        return self._state

    async def _wait_for_change(self) -> None:
        """Sets no timer unless a time is due, so an idle cluster costs no history event."""
        next_pass_at = next_pass(self._state, workflow.now())
        known = self._state.has_changed, self._state.not_before
        await self._wakeup_timer.wait_until(
            lambda: (
                self._is_pass_due()
                or (self._state.has_changed, self._state.not_before) != known
                or is_continue_as_new_due()
            ),
            next_pass_at,
            "the next pass",
        )

    def _is_pass_due(self) -> bool:
        now = workflow.now()
        next_pass_at = next_pass(self._state, now)
        return next_pass_at is not None and next_pass_at <= now

    async def _run_pass(self) -> None:
        """A change during the pass causes another one."""
        now = workflow.now()
        self._update_state(
            has_changed=False,
            last=now,
            passes=self._state.passes + 1,
            backoffs=prune_backoffs(self._state.backoffs, now),
        )
        decided = await self._compute_disruption(now)
        now = workflow.now()
        if decided.blocked:
            faults = self._state.faults + 1
            retry_at = retry_pass_at(faults, now)
            self._update_state(
                faults=faults,
                blocked_by=decided.blocked,
                not_before=retry_at,
                next_pass_at=retry_at,
                first=decided.first,
            )
            return
        self._update_state(
            faults=0,
            blocked_by="",
            not_before=None,
            first=decided.first,
            eligible=decided.eligible,
            excluded=decided.excluded,
        )
        if not cluster_blockers(self._state, now):
            for proposal in decided.proposals:
                await self._start_command(proposal)
        self._update_state(next_pass_at=next_timed_pass_at(self._state, decided.next_pass_at, workflow.now()))

    async def _compute_disruption(self, now: datetime) -> DisruptionDecision:
        state = self._state
        request = DisruptionDecisionRequest(
            under_way=tuple(one.under_way for one in state.under_way),
            blockers=cluster_blockers(state, now),
            backoffs=active_backoffs(state.backoffs, now),
            first=state.first,
        )
        options = {**with_summary(DECIDE, f"pass {state.passes}"), "task_queue": ids.plan_queue(state.cluster)}
        try:
            return await workflow.execute_activity_method(PlannerHostActivities.compute_disruption, request, **options)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return DisruptionDecision(blocked=f"pass failed: {error.cause or error}"[:200], first=state.first)

    async def _start_command(self, proposal: Proposal) -> None:
        """An open workflow with this ID is the same command, started by a lost run of this workflow."""
        now, others = workflow.now(), self._state.under_way
        if why_not_start(proposal, others, self._state.backoffs, now):
            return
        begun = CommandRun(under_way=InFlightCommand(proposal=proposal), since=now)
        self._update_state(under_way=(*others, begun))
        cluster = self._state.cluster
        try:
            await workflow.start_child_workflow(
                DisruptionWorkflow.run,
                CommandState(cluster=cluster, proposal=proposal, other_commands=tuple(one.under_way for one in others)),
                id=ids.disruption(cluster, proposal.id),
                parent_close_policy=ParentClosePolicy.ABANDON,
                search_attributes=visibility.command_start(proposal.candidates[0].pool, now),
                static_summary=f"{proposal.reason} of {', '.join(one.node for one in proposal.candidates[:3])}",
            )
        except WorkflowAlreadyStartedError:
            return

    async def _roll_back_lost_commands(self) -> None:
        """Roll back commands whose workflow ended without a signal. One that is still open, for example after hours
        without workers, rolls itself back, since it may be deleting its nodes."""
        for one in lost_commands(self._state.under_way, workflow.now()):
            proposal = one.under_way.proposal
            why = "its workflow was closed" if one.closed else "its workflow did not report for hours"
            workflow_id = ids.disruption(self._state.cluster, proposal.id)
            revocation = PermitRevoked(claim_uid=proposal.candidates[0].claim_uid, why=why)
            if await try_signal(workflow_id, "permit_revoked", revocation):
                self._replace_command(proposal.id, since=workflow.now(), closed=False)
                continue
            request = CommandRequest(
                workflow_id=workflow_id, reason=proposal.reason, candidates=proposal.candidates, why=why
            )
            options = {**with_summary(COMMAND, "restore the nodes"), "schedule_to_close_timeout": ROLL_BACK_TIMEOUT}
            try:
                await workflow.execute_activity_method(DisruptionActivities.roll_back_command, request, **options)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                self._update_state(blocked_by=f"the rollback failed: {error.cause or error}"[:200])
                return
            if one.closed:
                await self._release_permits(proposal, workflow_id)
            self.command_finished(CommandFinished(proposal_id=proposal.id, ending="failed", why=why))

    async def _release_permits(self, proposal: Proposal, workflow_id: str) -> None:
        """Withdraw the permits and requests of a command that cannot do so itself. Its permits count for rates, since
        it may have deleted nodes."""
        for one in proposal.candidates:
            release = PermitRelease(claim_uid=one.claim_uid, workflow_id=workflow_id, used=True)
            await try_signal(ids.nodepool(self._state.cluster, one.pool), "release_permit", release)

    def _replace_command(self, proposal_id: str, **fields: object) -> None:
        running = self._state.under_way
        self._update_state(
            under_way=tuple(
                one.model_copy(update=fields) if one.under_way.proposal.id == proposal_id else one for one in running
            )
        )

    def _update_state(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _set_current_details(self) -> None:
        publish_details(current_details.render_cluster(self._state))
