"""A NodePool's workflow with nothing but its roll-out and its permits."""

from contextlib import suppress
from datetime import timedelta

from temporalio import workflow

from tenure.model.observations import PoolSeen, StartEnded
from tenure.model.signals import PermitAsked
from tenure.model.workflow_states import Permit, PoolCount, PoolState
from tenure.policy.disruption.budgets import Allowance
from tenure.policy.nodepool import added
from workflows.approvals import Approving
from workflows.rollout import Rollouts


@workflow.defn
class RollingWorkflow(Approving):
    """Grants what the roll-out leaves of a budget of ten, as often as something is due or somebody wishes."""

    @workflow.init
    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._rollouts = Rollouts(lambda: self._state, self._change, opened=self._open)
        self._anew = False
        self._roll = False

    @workflow.run
    async def run(self, state: PoolState) -> None:
        while not self._roll:
            moment = self._rollouts.next()
            left = max(moment - workflow.now(), timedelta(0)) if moment else None
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: (self._anew and bool(self._state.asked)) or self._roll or self._rollouts.due(), timeout=left
                )
            if self._rollouts.due():
                await self._rollouts.step()
            if self._anew:
                await self._permit()
        workflow.continue_as_new(self._state)

    async def _permit(self) -> None:
        self._anew = False
        permits, wishes = self._state.permits, self._state.asked
        standing = (*(one.claim_uid for one in permits), *(one.claim_uid for one in wishes))
        budget = Allowance(allowed=10, count=PoolCount(standing=standing), why="the budget")
        left = await self._rollouts.narrow(budget)
        out = [one for one in self._state.permits if one.until > workflow.now()]
        room = max(0, left.allowed - len(out))
        going, waiting = self._state.asked[:room], self._state.asked[room:]
        until = workflow.now() + timedelta(minutes=2)
        given = tuple(
            Permit(claim_name=one.claim_name, claim_uid=one.claim_uid, reason="Drifted", until=until) for one in going
        )
        self._change(permits=(*out, *given), asked=waiting, blocked_by=left.why if waiting else "")
        self._rollouts.granted(one.claim_uid for one in going)

    def _open(self) -> None:
        self._anew = True

    @workflow.signal
    def seen(self, seen: PoolSeen) -> None:
        self._change(seen=seen)

    @workflow.signal
    def asked(self, asked: PermitAsked) -> None:
        self._change(asked=(*self._state.asked, asked))
        self._anew = True

    @workflow.signal
    def start_failed(self, failed: StartEnded) -> None:
        self._change(registrations=added(self._state.registrations, (failed,)))

    @workflow.signal
    def roll(self) -> None:
        self._roll = True

    @workflow.query
    def state(self) -> PoolState:
        return self._state

    @workflow.query
    def words(self) -> str:
        return self._rollouts.words

    def _change(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)
