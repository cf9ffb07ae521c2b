"""One command of voluntary disruption: get permits, taint nodes, launch replacements, delete nodes; or roll back.

The Cluster workflow starts it for a proposal of the planner. Each step returns the next step and is idempotent. The
command ends with the deletion of its nodes. Before that, a failure, a revoked permit or a cancellation rolls it back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from activities.planner_host import PlannerHostActivities
from tenure.model.disruption.commands import (
    CommandCancellation,
    CommandFinished,
    CommandLaunched,
    CommandState,
    PermitRevoked,
    ReplacementMessage,
    ReplacementRequest,
    Step,
)
from tenure.model.signals import OperatorRequestResult, PermitResult
from tenure.policy.disruption.commands import (
    CHECK_INTERVAL,
    DEADLINES,
    FINISH_WITHIN,
    all_ready,
    cancellation_changes,
    cancellation_message,
    candidates_without_permit,
    describe_unready_replacements,
    explain_unpermitted,
    is_check_due,
    next_check_at,
    next_wakeup_at,
    rejected_candidates,
    rejection_reason,
)
from workflows import ids
from workflows.activity_options import PLAN, is_continue_as_new_due, is_unpolled, with_summary
from workflows.disruption.command_context import OPERATOR_CANCELLED, Command, ContinueAsNewRequested
from workflows.metrics import count_command, count_ending
from workflows.phases.node_log import command_fields

RETRY_AFTER = timedelta(seconds=20)
"""Delay before the next rollback attempt, after all retries of the activity have failed."""
PLANNER_RETRY_AFTER = timedelta(seconds=5)
"""Delay before the next request to the planner host, since the watch may be moving to another process."""


async def acquire_permits(command: Command) -> Step:
    """Get a permit for every candidate from its NodePool."""
    while missing := candidates_without_permit(command.state, workflow.now()):
        known = command.state.permits
        unresponsive_nodepool = await command.request_permits()
        if unresponsive_nodepool:
            return command.stop_with("not permitted", f"NodePool {unresponsive_nodepool} has no workflow yet")
        why, rejections = explain_unpermitted(command.state, missing), rejected_candidates(command.state)
        if command.is_past_deadline():
            return command.stop_with("not permitted", why, nodes=(one.claim_uid for one in rejections or missing))
        if rejections:
            command.set_blocked_by(why)
        await command.wait_until(partial(_permits_changed, command, known), command.next_renewal_at(), "permits")
        if command.state.revocation:
            break
    return "Begin"


def _permits_changed(command: Command, before: dict[str, PermitResult]) -> bool:
    return command.state.permits is not before


async def begin_command(command: Command) -> Step:
    """Taint the nodes before the launch, as Karpenter does (reference 4.9). Then no pod is bound after the simulation,
    and a node that must stay costs two patches and no instance."""
    result = await command.execute_on_candidates(
        DisruptionActivities.begin_command, "taint the nodes", until=command.state.deadline
    )
    if result.outcome != "done":
        return command.stop_with("held", result.why, nodes=result.nodes)
    count_command(command.state.proposal)
    proposal = command.state.proposal
    reason = f"{proposal.reason}: {proposal.why}"
    workflow.logger.info("disrupting node(s)", extra={**command_fields(proposal), "reason": reason})
    return "Replace"


async def create_replacements(command: Command) -> Step:
    """Let the planner validate the command again and create the replacement NodeClaims, if any."""
    state = command.state
    request = ReplacementRequest(
        proposal=state.proposal,
        plan_id=state.plan_id,
        workflow_id=workflow.info().workflow_id,
        under_way=state.other_commands,
    )
    options = {**with_summary(PLAN, "validate, create replacements"), "task_queue": ids.plan_queue(state.cluster)}
    try:
        result = await command.wait_for_result(
            workflow.start_activity_method(PlannerHostActivities.create_replacements, request, **options)
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return await _retry_planner(command, str(error.cause or error)[:200], outage=is_unpolled(error))
    match result.outcome:
        case "stale":
            return command.stop_with("stale", result.why)
        case "not now":
            return await _retry_planner(command, result.why)
    now = workflow.now()
    command.update_state(
        claims=result.claims, other_commands=(), ready_by=now + DEADLINES["Wait"], next_check_at=now + CHECK_INTERVAL
    )
    await command.signal_cluster(
        "command_launched", CommandLaunched(proposal_id=state.proposal.id, claims=result.claims)
    )
    return "Wait"


async def _retry_planner(command: Command, why: str, *, outage: bool = False) -> Step:
    command.set_blocked_by(why)
    if command.is_past_deadline():
        return command.stop_with("failed", why, outage=outage)
    await command.wait_until(lambda: False, workflow.now() + PLANNER_RETRY_AFTER, "the planner's host")
    return "Replace"


async def wait_for_replacements(command: Command) -> Step:
    """Wait until all replacements have signaled ready, or one has signaled its failure."""
    while not is_check_due(command.state, workflow.now()):
        state = command.state
        if state.lost:
            return command.stop_with("not replaced", state.lost)
        if command.is_past_deadline():
            return command.stop_with(
                "not replaced", f"not initialized in time: {describe_unready_replacements(state) or state.blocked_by}"
            )
        await command.request_permits()
        if not all_ready(state):
            command.set_blocked_by(f"waits for {describe_unready_replacements(state)}")
        await command.wait_until(
            partial(_replacements_changed, command, state), next_wakeup_at(command.state), "replacements"
        )
        if command.state.revocation:
            break
    return "Finish"


def _replacements_changed(command: Command, before: CommandState) -> bool:
    now = command.state
    return (now.ready, now.lost) != (before.ready, before.lost)


async def finish_command(command: Command) -> Step:
    result = await command.execute_on_candidates(
        DisruptionActivities.finish_command,
        "validate, delete the NodeClaims",
        until=workflow.now() + FINISH_WITHIN,
        stoppable=True,
    )
    match result.outcome:
        case "held":
            return command.stop_with("held", result.why, nodes=result.nodes)
        case "lost":
            return command.stop_with("not replaced", result.why)
        case "waiting":
            command.update_state(
                failed_checks=command.state.failed_checks + 1,
                next_check_at=next_check_at(command.state, workflow.now()),
            )
            command.set_blocked_by(result.why)
            return "Wait"
    command.record_ending("done")
    await command.release_permits(used=True)
    return "Over"


async def roll_back(command: Command) -> Step:
    """Retry without limit, since a node that stays tainted costs money but runs no new pods."""
    try:
        await command.execute_on_candidates(
            DisruptionActivities.roll_back_command, "restore the nodes, delete the replacements", until=None
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        command.set_blocked_by(str(error.cause or error)[:200])
        if is_continue_as_new_due():
            raise ContinueAsNewRequested from error
        await workflow.sleep(RETRY_AFTER, summary="before the next rollback")
        return "Undo"
    await command.release_permits()
    return "Over"


STEPS: dict[Step, Callable[[Command], Awaitable[Step]]] = {
    "Permit": acquire_permits,
    "Begin": begin_command,
    "Replace": create_replacements,
    "Wait": wait_for_replacements,
    "Finish": finish_command,
    "Undo": roll_back,
}


@workflow.defn(name="Disruption")
class DisruptionWorkflow:
    @workflow.init
    def __init__(self, state: CommandState) -> None:
        self._command = Command(state)

    @workflow.run
    async def run(self, state: CommandState) -> CommandFinished:
        command = self._command
        command.start_run()
        try:
            while command.state.step != "Over":
                command.transition_to(await self._run_step(command))
        except ContinueAsNewRequested:
            workflow.continue_as_new(command.state)
        finished = command.state.over or CommandFinished(proposal_id=command.state.proposal.id, ending="done")
        count_ending(command.state.proposal, finished)
        fields = {**command_fields(command.state.proposal), "outcome": finished.ending, "reason": finished.why}
        workflow.logger.info("finished disruption command", extra=fields)
        await command.signal_cluster("command_finished", finished)
        return finished

    async def _run_step(self, command: Command) -> Step:
        """Before each step, stop the command if a permit was revoked or an operator cancelled it."""
        step = command.state.step
        if command.state.revocation and step != "Undo":
            return command.stop_with("cancelled", command.state.revocation)
        try:
            return await STEPS[step](command)
        except (asyncio.CancelledError, ActivityError) as error:
            if is_cancelled_exception(error):
                return command.stop_with("cancelled", command.state.revocation or OPERATOR_CANCELLED)
            return command.stop_with("failed", str(error.__cause__ or error), outage=is_unpolled(error))

    @workflow.signal(description="From a NodePool: a disruption permit, or what blocks it")
    def permit_decided(self, response: PermitResult) -> None:
        """A rejection is ignored after the step Permit, since the tainted nodes then count against the budgets."""
        state = self._command.state
        uids = {one.claim_uid for one in state.proposal.candidates}
        uid = response.claim_uid or (min(uids) if len(uids) == 1 else "")
        if uid in uids and (response.granted or state.step == "Permit"):
            self._command.update_state(permits={**state.permits, uid: response})

    @workflow.signal(description="From a replacement NodeClaim: it is ready, or has failed")
    def replacement_status(self, message: ReplacementMessage) -> None:
        if message.ready:
            others = tuple(one for one in self._command.state.ready if one != message.claim)
            self._command.update_state(ready=(*others, message.claim), failed_checks=0)
        else:
            self._command.update_state(lost=f"replacement {message.claim}: {message.why}")

    @workflow.signal(description="From a NodePool: it revoked the permit")
    def permit_revoked(self, revocation: PermitRevoked) -> None:
        self._command.update_state(revocation=revocation.why or "its permit was revoked")

    @workflow.update(
        description='Cancel it: its nodes stay, its replacements are deleted: {"by": "ann", "reason": "launch day"}'
    )
    def cancel(self, request: CommandCancellation) -> OperatorRequestResult:
        """Roll the command back at the request of an operator."""
        return self._cancel(request)

    @cancel.validator
    def _validate_cancel(self, request: CommandCancellation) -> None:
        if why := rejection_reason(self._command.state, request):
            raise ValueError(why)

    @workflow.signal(name="cancel", description="The update of this name without a result, for use in bulk")
    def cancel_by_signal(self, request: CommandCancellation) -> None:
        """The update as a signal, which needs no running worker. An invalid request is ignored."""
        self._cancel(request)

    def _cancel(self, request: CommandCancellation) -> OperatorRequestResult:
        state = self._command.state
        if why := rejection_reason(state, request):
            return OperatorRequestResult(accepted=False, message=why)
        self._command.update_state(**cancellation_changes(state, request, workflow.now()))
        return OperatorRequestResult(message=cancellation_message(state, request))

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> CommandState:
        return self._command.state
