"""One command of voluntary disruption: permits, taints, replacements, and then the nodes go; or all of it is undone.

The Cluster workflow starts it for a proposal of the planner. Each step answers with the step that follows, and can be
repeated: what was done is found done. A deletion is the end; before that, whatever fails or is recalled leads to Undo.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import CommandActivities
from activities.planner_host import DisruptingActivities
from tenure.model.disruption.commands import (
    CommandMade,
    CommandOver,
    CommandState,
    GiveUp,
    PermitRecalled,
    ReplaceAsked,
    ReplacementSaid,
    Step,
)
from tenure.model.signals import PermitAnswered, Verdict
from tenure.policy.disruption.commands import (
    DEADLINES,
    FINISH_WITHIN,
    LOOK_EVERY,
    all_ready,
    answer,
    given_up,
    look_due,
    next_look,
    refusal_of,
    refused,
    sooner,
    starting,
    unpermitted,
    why_unpermitted,
)
from workflows import ids
from workflows.activity_options import PLAN, named
from workflows.disruption.command_context import Command, RollOver
from workflows.disruption.metrics import count_command, count_ending

AGAIN_IN = timedelta(seconds=20)
"""Before nodes are put back again, after a fault that retries could not help."""
HOST_AGAIN_IN = timedelta(seconds=5)
"""Before the planner's host is asked again: the watch may be moving to another process."""


async def permit(command: Command) -> Step:
    """Every candidate needs one, of its own NodePool."""
    while left := unpermitted(command.state, workflow.now()):
        known = command.state.permits
        silent = await command.ask()
        if silent:
            return command.stop("not permitted", f"NodePool {silent} has no workflow yet")
        why, against = why_unpermitted(command.state, left), refused(command.state)
        if command.late():
            return command.stop("not permitted", why, nodes=(one.claim_uid for one in against or left))
        if against:
            command.block(why)
        await command.until(partial(_answered, command, known), command.renewal(), "permits")
        if command.state.recalled:
            break
    return "Begin"


def _answered(command: Command, before: dict[str, PermitAnswered]) -> bool:
    return command.state.permits is not before


async def begin(command: Command) -> Step:
    """Nodes are tainted before anything is bought, as Karpenter does (reference 4.9): what is simulated and bought for
    is then what is there, since no pod comes in after, and a wish to stay costs two patches and no instance."""
    acted = await command.act(
        CommandActivities.begin_command, "take nodes out of service", until=command.state.deadline
    )
    if acted.outcome != "done":
        return command.stop("held", acted.why, nodes=acted.nodes)
    count_command(command.state.proposal)
    return "Replace"


async def replace(command: Command) -> Step:
    """The planner's host looks once more whether all of it still holds, also where nothing is to be bought."""
    state = command.state
    asked = ReplaceAsked(
        proposal=state.proposal,
        plan_id=state.plan_id,
        workflow_id=workflow.info().workflow_id,
        under_way=state.others,
    )
    options = {**named(PLAN, "check again, make replacements"), "task_queue": ids.plan_queue(state.cluster)}
    try:
        made = await workflow.execute_activity_method(DisruptingActivities.make_replacements, asked, **options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return await _host_again(command, str(error.cause or error)[:200])
    match made.outcome:
        case "stale":
            return command.stop("stale", made.why)
        case "not now":
            return await _host_again(command, made.why)
    now = workflow.now()
    command.change(claims=made.claims, others=(), ready_by=now + DEADLINES["Wait"], look_at=now + LOOK_EVERY)
    await command.tell_cluster("command_made", CommandMade(proposal_id=state.proposal.id, claims=made.claims))
    return "Wait"


async def _host_again(command: Command, why: str) -> Step:
    command.block(why)
    if command.late():
        return command.stop("failed", why)
    await command.until(lambda: False, workflow.now() + HOST_AGAIN_IN, "the planner's host")
    return "Replace"


async def wait(command: Command) -> Step:
    """Replacements say when they are ready, or that they never will be."""
    while not look_due(command.state, workflow.now()):
        state = command.state
        if state.lost:
            return command.stop("not replaced", state.lost)
        if command.late():
            return command.stop("not replaced", f"not initialized in time: {starting(state) or state.blocked_by}")
        await command.ask()
        if not all_ready(state):
            command.block(f"waits for {starting(state)}")
        await command.until(partial(_spoke, command, state), sooner(command.state), "replacements")
        if command.state.recalled:
            break
    return "Finish"


def _spoke(command: Command, before: CommandState) -> bool:
    now = command.state
    return (now.ready, now.lost) != (before.ready, before.lost)


async def finish(command: Command) -> Step:
    acted = await command.act(
        CommandActivities.finish_command,
        "look again, delete the NodeClaims",
        until=workflow.now() + FINISH_WITHIN,
        stoppable=True,
    )
    match acted.outcome:
        case "held":
            return command.stop("held", acted.why, nodes=acted.nodes)
        case "lost":
            return command.stop("not replaced", acted.why)
        case "waiting":
            command.change(looks=command.state.looks + 1, look_at=next_look(command.state, workflow.now()))
            command.block(acted.why)
            return "Wait"
    command.end("done")
    await command.withdraw(used=True)
    return "Over"


async def undo(command: Command) -> Step:
    """For as long as it takes: a node that is tainted and goes nowhere would be waste without end."""
    try:
        await command.act(CommandActivities.undo_command, "put nodes back, take replacements away", until=None)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        command.block(str(error.cause or error)[:200])
        await workflow.sleep(AGAIN_IN, summary="before putting nodes back again")
        return "Undo"
    await command.withdraw()
    return "Over"


STEPS: dict[Step, Callable[[Command], Awaitable[Step]]] = {
    "Permit": permit,
    "Begin": begin,
    "Replace": replace,
    "Wait": wait,
    "Finish": finish,
    "Undo": undo,
}


@workflow.defn
class DisruptionWorkflow:
    @workflow.init
    def __init__(self, state: CommandState) -> None:
        self._command = Command(state)

    @workflow.run
    async def run(self, state: CommandState) -> CommandOver:
        command = self._command
        command.begin()
        try:
            while command.state.step != "Over":
                command.enter(await self._step(command))
        except RollOver:
            await workflow.wait_condition(workflow.all_handlers_finished)
            workflow.continue_as_new(command.state)
        over = command.state.over or CommandOver(proposal_id=command.state.proposal.id, ending="done")
        count_ending(command.state.proposal, over)
        await command.tell_cluster("command_over", over)
        return over

    async def _step(self, command: Command) -> Step:
        """Between steps it is safe to stop: when a permit is recalled, and when a person cancels the workflow."""
        step = command.state.step
        if command.state.recalled and step != "Undo":
            return command.stop("recalled", command.state.recalled)
        try:
            return await STEPS[step](command)
        except (asyncio.CancelledError, ActivityError) as error:
            if is_cancelled_exception(error):
                return command.stop("recalled", command.state.recalled or "a person cancelled it")
            return command.stop("failed", str(getattr(error, "cause", None) or error))

    @workflow.signal(description="From a NodePool: a permit, or why there is none")
    def permitted(self, answer: PermitAnswered) -> None:
        """Once nodes are out of service they count for their budgets by themselves, and a refusal says nothing new."""
        state = self._command.state
        uids = {one.claim_uid for one in state.proposal.candidates}
        uid = answer.claim_uid or (min(uids) if len(uids) == 1 else "")
        if uid in uids and (answer.granted or state.step == "Permit"):
            self._command.change(permits={**state.permits, uid: answer})

    @workflow.signal(description="From a NodeClaim that was bought for this: it is ready, or will not be")
    def replacement(self, said: ReplacementSaid) -> None:
        if said.ready:
            others = tuple(one for one in self._command.state.ready if one != said.claim)
            self._command.change(ready=(*others, said.claim), looks=0)
        else:
            self._command.change(lost=f"replacement {said.claim}: {said.why}")

    @workflow.signal(description="From a NodePool: it called the permit back")
    def recalled(self, recalled: PermitRecalled) -> None:
        self._command.change(recalled=recalled.why or "its permit was recalled")

    @workflow.update(description='Undo it: its nodes stay, its replacements go: {"by": "ann", "reason": "launch day"}')
    def give_up(self, said: GiveUp) -> Verdict:
        """A person wants it undone."""
        return self._give_up(said)

    @give_up.validator
    def _check_give_up(self, said: GiveUp) -> None:
        if why := refusal_of(self._command.state, said):
            raise ValueError(why)

    @workflow.signal(description="give_up without an answer: works in bulk, and waits for a worker")
    def given_up(self, said: GiveUp) -> None:
        """The same where no worker may be there to answer; what makes no sense is not heeded."""
        self._give_up(said)

    def _give_up(self, said: GiveUp) -> Verdict:
        state = self._command.state
        if why := refusal_of(state, said):
            return Verdict(accepted=False, message=why)
        self._command.change(**given_up(state, said, workflow.now()))
        return Verdict(message=answer(state, said))

    @workflow.query(description="All that the workflow knows")
    def state(self) -> CommandState:
        return self._command.state
