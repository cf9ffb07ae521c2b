"""What people may say of a roll-out, in every form: answered updates, and signals that also wait for a worker.

A NodePool's workflow takes `Approving` as a base and makes `_rollouts` in `__init__`;
`tenure/cli/disruption/approve.py` calls it.

What people may say of a node's events: answered updates, and signals that also wait for a worker.

A NodeClaim's workflow takes `Answering` as a base and makes `_life` in `__init__`;
`tenure/cli/disruption/approve.py` calls it.
"""

from temporalio import workflow

from tenure.model.interruption.records import ApproveEvent, RejectEvent
from tenure.model.rollout import ApproveRollout, RejectRollout
from tenure.model.signals import Verdict
from tenure.policy.interruption.decision import approvable
from tenure.policy.interruption.events import answered
from tenure.policy.interruption.messages import answer_of, problem_of, verdict_of
from workflows.nodeclaim_context import Life
from workflows.rollout import Rollouts


class Approving:
    _rollouts: Rollouts

    @workflow.update(
        description="Let the wave of this plan begin, or a roll-out that has halted go on: "
        '{"plan": "web-3f2a9c", "by": "ann"}'
    )
    def approve(self, said: ApproveRollout) -> Verdict:
        """Let the wave of this plan begin, or a roll-out that has halted go on."""
        return self._rollouts.approve(said)

    @approve.validator
    def _check_approve(self, said: ApproveRollout) -> None:
        self._rollouts.check(said)

    @workflow.update(
        description="Let no further node go; roll_back takes the last good image again: "
        '{"plan": "web-3f2a9c", "by": "ann", "roll_back": true}'
    )
    def reject(self, said: RejectRollout) -> Verdict:
        """No further node goes."""
        return self._rollouts.reject(said)

    @reject.validator
    def _check_reject(self, said: RejectRollout) -> None:
        self._rollouts.check(said)

    @workflow.signal(description="approve without an answer: works in bulk, and waits for a worker")
    def approve_rollout(self, said: ApproveRollout) -> None:
        self._rollouts.approve(said)

    @workflow.signal(description="reject without an answer: works in bulk, and waits for a worker")
    def reject_rollout(self, said: RejectRollout) -> None:
        self._rollouts.reject(said)


class Answering:
    _life: Life

    @workflow.update(
        description="Let the node go for what AWS announced, or those of its pods that wait for a yes: "
        '{"by": "ann", "reason": "moved the database"}'
    )
    def approve_event(self, said: ApproveEvent) -> Verdict:
        """Let the node go, or those of its pods that wait for it."""
        return self._take(said, approved=True)

    @approve_event.validator
    def _check_approve_event(self, said: ApproveEvent) -> None:
        self._check(said)

    @workflow.update(
        description="Keep the node in spite of what AWS announced, for as long as its policy lets that be: "
        '{"by": "ann", "reason": "not today"}'
    )
    def reject_event(self, said: RejectEvent) -> Verdict:
        """Keep it, for as long as its policy lets that be."""
        return self._take(said, approved=False)

    @reject_event.validator
    def _check_reject_event(self, said: RejectEvent) -> None:
        self._check(said)

    @workflow.signal(description="approve_event without an answer: works in bulk, and waits for a worker")
    def event_approved(self, said: ApproveEvent) -> None:
        self._take(said, approved=True)

    @workflow.signal(description="reject_event without an answer: works in bulk, and waits for a worker")
    def event_rejected(self, said: RejectEvent) -> None:
        self._take(said, approved=False)

    def _check(self, said: ApproveEvent | RejectEvent) -> None:
        if wrong := problem_of(self._life.state, said.by, said.reason):
            raise ValueError(wrong)

    def _take(self, said: ApproveEvent | RejectEvent, *, approved: bool) -> Verdict:
        life = self._life
        if wrong := problem_of(life.state, said.by, said.reason):
            return Verdict(accepted=False, message=wrong)
        answer = answer_of(said.by, said.reason, workflow.now(), approved=approved)
        keys = [event.key for event in approvable(life.state)]
        life.change(notices=answered(life.state.notices, keys, answer))
        return verdict_of(life.state, answer, workflow.now())
