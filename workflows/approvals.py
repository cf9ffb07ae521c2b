"""Updates and signals with which operators approve or reject rollouts (NodePool) and AWS events (NodeClaim).

`tenure/cli/disruption/approve.py` sends them.
"""

from temporalio import workflow

from tenure.model.interruption.records import ApproveEvent, RejectEvent
from tenure.model.rollout import ApproveRollout, RejectRollout
from tenure.model.signals import OperatorRequestResult
from tenure.policy.interruption.decision import approvable_events
from tenure.policy.interruption.event_texts import describe_decision, new_decision, problem_of
from tenure.policy.interruption.events import record_approval
from workflows.nodeclaim_context import NodeClaimContext
from workflows.rollout import RolloutController


class RolloutApprovals:
    _rollouts: RolloutController

    @workflow.update(
        description="Approve this plan: start its wave, or continue a halted rollout: "
        '{"plan": "web-3f2a9c", "by": "ann"}'
    )
    def approve(self, request: ApproveRollout) -> OperatorRequestResult:
        return self._rollouts.approve(request)

    @approve.validator
    def _validate_approve(self, request: ApproveRollout) -> None:
        self._rollouts.validate(request)

    @workflow.update(
        description="Reject this plan: disrupt no further node; roll_back restores the last good image: "
        '{"plan": "web-3f2a9c", "by": "ann", "roll_back": true}'
    )
    def reject(self, request: RejectRollout) -> OperatorRequestResult:
        return self._rollouts.reject(request)

    @reject.validator
    def _validate_reject(self, request: RejectRollout) -> None:
        self._rollouts.validate(request)

    @workflow.signal(description="The update approve without a result, for use in bulk or without a running worker")
    def approve_rollout(self, request: ApproveRollout) -> None:
        self._rollouts.approve(request)

    @workflow.signal(description="The update reject without a result, for use in bulk or without a running worker")
    def reject_rollout(self, request: RejectRollout) -> None:
        self._rollouts.reject(request)


class EventApprovals:
    _nodeclaim_context: NodeClaimContext

    @workflow.update(
        description="Approve the pending AWS event: drain the node, or its pods that wait for approval: "
        '{"by": "ann", "reason": "moved the database"}'
    )
    def approve_event(self, request: ApproveEvent) -> OperatorRequestResult:
        return self._apply_decision(request, approved=True)

    @approve_event.validator
    def _validate_approve_event(self, request: ApproveEvent) -> None:
        self._validate(request)

    @workflow.update(
        description="Reject the pending AWS event: keep the node as long as its policy allows: "
        '{"by": "ann", "reason": "not today"}'
    )
    def reject_event(self, request: RejectEvent) -> OperatorRequestResult:
        return self._apply_decision(request, approved=False)

    @reject_event.validator
    def _validate_reject_event(self, request: RejectEvent) -> None:
        self._validate(request)

    @workflow.signal(name="approve_event", description="The update of this name without a result, for use in bulk")
    def approve_event_by_signal(self, request: ApproveEvent) -> None:
        self._apply_decision(request, approved=True)

    @workflow.signal(name="reject_event", description="The update of this name without a result, for use in bulk")
    def reject_event_by_signal(self, request: RejectEvent) -> None:
        self._apply_decision(request, approved=False)

    def _validate(self, request: ApproveEvent | RejectEvent) -> None:
        if problem := problem_of(self._nodeclaim_context.state, request.by, request.reason):
            raise ValueError(problem)

    def _apply_decision(self, request: ApproveEvent | RejectEvent, *, approved: bool) -> OperatorRequestResult:
        nodeclaim_context = self._nodeclaim_context
        if problem := problem_of(nodeclaim_context.state, request.by, request.reason):
            return OperatorRequestResult(accepted=False, message=problem)
        decision = new_decision(request.by, request.reason, workflow.now(), approved=approved)
        keys = [event.key for event in approvable_events(nodeclaim_context.state)]
        nodeclaim_context.update_state(
            interruptions=record_approval(nodeclaim_context.state.interruptions, keys, decision)
        )
        return describe_decision(nodeclaim_context.state, decision, workflow.now())
