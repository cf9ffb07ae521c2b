"""What people may say of a roll-out, in every form: answered updates, and signals that also wait for a worker.

A NodePool's workflow takes `Approving` as a base and makes `_rollouts` in `__init__`; `cli/approve.py` calls it.
"""

from temporalio import workflow

from model.messages import Verdict
from model.rollouts import ApproveRollout, RejectRollout
from workflows.rollouts import Rollouts


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
