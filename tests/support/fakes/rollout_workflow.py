"""A NodePool workflow with only its rollout and its permits."""

from contextlib import suppress
from datetime import timedelta

from temporalio import workflow

from tenure.model.observations import ObservedNodePool, StartupOutcome
from tenure.model.signals import PermitRequest
from tenure.model.workflow_states import NodePoolCount, NodePoolState, Permit
from tenure.policy.disruption.budgets import AllowedDisruptions
from tenure.policy.nodepool import add_outcomes
from workflows.approvals import RolloutApprovals
from workflows.rollout import RolloutController


@workflow.defn
class RolloutOnlyWorkflow(RolloutApprovals):
    """Grants the permits that the rollout leaves of a budget of ten, whenever a step is due or a request arrives."""

    @workflow.init
    def __init__(self, state: NodePoolState) -> None:
        self._state = state
        self._rollouts = RolloutController(lambda: self._state, self._update_state, on_opened=self._on_rollout_opened)
        self._reevaluate = False
        self._continue_as_new = False

    @workflow.run
    async def run(self, state: NodePoolState) -> None:
        while not self._continue_as_new:
            due_at = self._rollouts.next_at()
            remaining = max(due_at - workflow.now(), timedelta(0)) if due_at else None
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: (
                        (self._reevaluate and bool(self._state.pending_requests))
                        or self._continue_as_new
                        or self._rollouts.is_due()
                    ),
                    timeout=remaining,
                )
            if self._rollouts.is_due():
                await self._rollouts.run_step()
            if self._reevaluate:
                await self._grant_permits()
        workflow.continue_as_new(self._state)

    async def _grant_permits(self) -> None:
        self._reevaluate = False
        permits, requests = self._state.permits, self._state.pending_requests
        node_uids = (*(one.claim_uid for one in permits), *(one.claim_uid for one in requests))
        budget = AllowedDisruptions(allowed=10, count=NodePoolCount(existing=node_uids), why="the budget")
        allowed_disruptions = await self._rollouts.limit_allowed_disruptions(budget)
        valid_permits = [one for one in self._state.permits if one.until > workflow.now()]
        headroom = max(0, allowed_disruptions.allowed - len(valid_permits))
        granted, waiting = self._state.pending_requests[:headroom], self._state.pending_requests[headroom:]
        until = workflow.now() + timedelta(minutes=2)
        new_permits = tuple(
            Permit(claim_name=one.claim_name, claim_uid=one.claim_uid, reason="Drifted", until=until) for one in granted
        )
        self._update_state(
            permits=(*valid_permits, *new_permits),
            pending_requests=waiting,
            blocked_by=allowed_disruptions.why if waiting else "",
        )
        self._rollouts.record_granted(one.claim_uid for one in granted)

    def _on_rollout_opened(self) -> None:
        self._reevaluate = True

    @workflow.signal
    def observe(self, observed: ObservedNodePool) -> None:
        self._update_state(observed=observed)

    @workflow.signal
    def request_permit(self, request: PermitRequest) -> None:
        self._update_state(pending_requests=(*self._state.pending_requests, request))
        self._reevaluate = True

    @workflow.signal
    def startup_failed(self, failed: StartupOutcome) -> None:
        self._update_state(registrations=add_outcomes(self._state.registrations, (failed,)))

    @workflow.signal
    def force_continue_as_new(self) -> None:
        self._continue_as_new = True

    @workflow.query
    def state(self) -> NodePoolState:
        return self._state

    @workflow.query
    def description(self) -> str:
        return self._rollouts.status_text

    def _update_state(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)
