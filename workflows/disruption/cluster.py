"""Cluster: voluntary disruption of the whole cluster. It asks the planner what could go, and starts what is worth it.

One per cluster. It sleeps until the watch says that something changed, or until time alone changes a verdict. Each
command is a workflow of its own (`disruption.py`) that outlives a run of this one and says how it ended; what came to
nothing is remembered. A pass that fails is a value here: it is said, and tried again.
"""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    FailureError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)
from temporalio.workflow import ParentClosePolicy

from activities.disruption import CommandActivities
from activities.planner_host import DisruptingActivities
from tenure.model.disruption.commands import (
    CommandAsked,
    CommandMade,
    CommandOver,
    CommandRun,
    CommandState,
    DecideAsked,
    Decided,
    DisruptionState,
    Proposal,
    Stirred,
    UnderWay,
)
from tenure.model.disruption.permits import BookAnswered, BookAsked
from tenure.model.operator_requests import MirrorAsked
from tenure.policy.disruption.commands import (
    active,
    after_fault,
    earliest,
    holds,
    kept,
    lost,
    next_pass,
    remembered,
    why_not_start,
)
from tenure.policy.disruption.permits import before, booked, lapses
from workflows import current_details, ids, visibility
from workflows.activity_options import COMMAND, DECIDE, named, roll_due
from workflows.disruption.command import DisruptionWorkflow
from workflows.pausable import Brake, ClusterBraked

PUT_BACK_WITHIN = timedelta(minutes=5)


@workflow.defn
class ClusterWorkflow(ClusterBraked):
    @workflow.init
    def __init__(self, state: DisruptionState) -> None:
        self._state = state
        target = MirrorAsked(kind="Cluster", name=state.cluster)
        self._brake = Brake(lambda: target, lambda: self._state, self._change, changed=self._braked)

    @workflow.run
    async def run(self, state: DisruptionState) -> None:
        keeping = asyncio.create_task(self._brake.keep())
        try:
            while True:
                await self._turn()
        finally:
            keeping.cancel()

    async def _turn(self) -> None:
        self._describe()
        await self._news()
        if roll_due():
            await workflow.wait_condition(lambda: workflow.all_handlers_finished() and not self._brake.busy)
            workflow.continue_as_new(self._state)
        if self._due():
            await self._put_back()
            await self._pass()

    def _braked(self) -> None:
        """It is paused, or goes on; then there is something to decide again."""
        if self._state.pause is None:
            self._change(news=True)
        self._describe()

    @workflow.signal(description="From the watch: something that disruption looks at has changed")
    def stirred(self, stirred: Stirred) -> None:
        if stirred.number > self._state.stirred:
            self._change(stirred=stirred.number, news=True)

    @workflow.signal(description="From a command: its replacements are there")
    def command_made(self, made: CommandMade) -> None:
        """Its replacements are there, and no room for anything else."""
        self._change(
            under_way=tuple(
                _with_claims(one, made) if one.under_way.proposal.id == made.proposal_id else one
                for one in self._state.under_way
            )
        )

    @workflow.signal(description="From a command: how it ended")
    def command_over(self, over: CommandOver) -> None:
        """What it leaves behind may be news; what came to nothing is left alone for a while."""
        state = self._state
        ended = [one for one in state.under_way if one.under_way.proposal.id == over.proposal_id]
        left = tuple(one for one in state.under_way if one not in ended)
        memory = state.bounced
        for one in ended:
            memory = remembered(memory, one.under_way.proposal, over, workflow.now())
        self._change(under_way=left, bounced=memory, news=True)

    @workflow.signal(description="From a NodePool: it is about to give permits")
    async def book(self, asked: BookAsked) -> None:
        """A NodePool whose nodes are limited together with all others is about to give permits."""
        self._change(booked=booked(self._state.booked, asked, workflow.now()))
        if asked.token:
            book = self._state.booked
            answer = BookAnswered(token=asked.token, others=before(book, asked.pool), until=lapses(book, asked.pool))
            with suppress(FailureError):
                await workflow.get_external_workflow_handle(asked.workflow_id).signal("booked", answer)

    @workflow.query(description="All that the workflow knows")
    def state(self) -> DisruptionState:
        return self._state

    async def _news(self) -> None:
        """While nothing changes and no verdict has an end, nothing happens at all."""
        moment = next_pass(self._state, workflow.now())
        known = self._state.news
        try:
            await workflow.wait_condition(
                lambda: self._due() or self._state.news != known or roll_due(),
                timeout=max(moment - workflow.now(), timedelta(0)) if moment else None,
                timeout_summary="the next pass" if moment else None,
            )
        except TimeoutError:
            return

    def _due(self) -> bool:
        now = workflow.now()
        moment = next_pass(self._state, now)
        return moment is not None and moment <= now

    async def _pass(self) -> None:
        """What is said to have changed while the planner decides is for the next pass."""
        now = workflow.now()
        self._change(news=False, last=now, passes=self._state.passes + 1, bounced=kept(self._state.bounced, now))
        decided = await self._decide(now)
        now = workflow.now()
        if decided.blocked:
            faults = self._state.faults + 1
            pause = after_fault(faults, now)
            self._change(faults=faults, blocked_by=decided.blocked, not_before=pause, again=pause, first=decided.first)
            return
        self._change(
            faults=0,
            blocked_by="",
            not_before=None,
            first=decided.first,
            eligible=decided.eligible,
            excluded=decided.excluded,
        )
        if not holds(self._state, now):
            for proposal in decided.proposals:
                await self._start(proposal)
        self._change(again=earliest(self._state, decided.again, workflow.now()))

    async def _decide(self, now: datetime) -> Decided:
        state = self._state
        asked = DecideAsked(
            under_way=tuple(one.under_way for one in state.under_way),
            holds=holds(state, now),
            bounced=active(state.bounced, now),
            first=state.first,
        )
        options = {**named(DECIDE, f"pass {state.passes}"), "task_queue": ids.plan_queue(state.cluster)}
        try:
            return await workflow.execute_activity_method(DisruptingActivities.decide_disruption, asked, **options)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return Decided(blocked=f"nothing was decided: {error.cause or error}"[:200], first=state.first)

    async def _start(self, proposal: Proposal) -> None:
        """What is running under this id already is the same command, begun by a run that was lost."""
        now, others = workflow.now(), self._state.under_way
        if why_not_start(proposal, others, self._state.bounced, now):
            return
        begun = CommandRun(under_way=UnderWay(proposal=proposal), since=now)
        self._change(under_way=(*others, begun))
        cluster = self._state.cluster
        try:
            await workflow.start_child_workflow(
                DisruptionWorkflow.run,
                CommandState(cluster=cluster, proposal=proposal, others=tuple(one.under_way for one in others)),
                id=ids.disruption(cluster, proposal.id),
                parent_close_policy=ParentClosePolicy.ABANDON,
                search_attributes=visibility.command_start(proposal.candidates[0].pool, now),
                static_summary=f"{proposal.reason} of {', '.join(one.node for one in proposal.candidates[:3])}",
            )
        except WorkflowAlreadyStartedError:
            return

    async def _put_back(self) -> None:
        """What commands left that will never say how they ended."""
        for one in lost(self._state.under_way, workflow.now()):
            proposal = one.under_way.proposal
            why = "its workflow said nothing for hours"
            asked = CommandAsked(
                workflow_id=ids.disruption(self._state.cluster, proposal.id),
                reason=proposal.reason,
                candidates=proposal.candidates,
                why=why,
            )
            options = {**named(COMMAND, "put nodes back"), "schedule_to_close_timeout": PUT_BACK_WITHIN}
            try:
                await workflow.execute_activity_method(CommandActivities.undo_command, asked, **options)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                self._change(blocked_by=f"nodes could not be put back: {error.cause or error}"[:200])
                return
            self.command_over(CommandOver(proposal_id=proposal.id, ending="failed", why=why))

    def _change(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _describe(self) -> None:
        workflow.set_current_details(current_details.of_cluster(self._state))


def _with_claims(one: CommandRun, made: CommandMade) -> CommandRun:
    return one.model_copy(update={"under_way": one.under_way.model_copy(update={"claims": made.claims})})
