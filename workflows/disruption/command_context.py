"""What the steps of a command hold in their hands: its state, its permits, and the ways to act, wait, show and tell.

`disruption.py` makes one per run and walks the steps with it. Handlers only replace `state`; steps do the rest.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError
from temporalio.workflow import ActivityCancellationType

from tenure.model.disruption.commands import (
    CommandActed,
    CommandAsked,
    CommandMade,
    CommandOver,
    CommandState,
    Ending,
    Step,
)
from tenure.model.disruption.planning import Leaving
from tenure.model.signals import PermitAsked, PermitWithdrawn
from tenure.policy.disruption.commands import BEGINS_WITHIN, DEADLINES, ask_due, renewal, to_ask
from workflows import current_details, ids, visibility
from workflows.activity_options import COMMAND, named, roll_due

Act = Callable[[Any, CommandAsked], Awaitable[CommandActed]]


class RollOver(Exception):
    """Raised out of a wait: the run continues as new with the state as it stands."""


class Command:
    def __init__(self, state: CommandState) -> None:
        self.state = state

    def change(self, **fields: object) -> None:
        """Replace fields of the state."""
        self.state = self.state.model_copy(update=fields)

    def begin(self) -> None:
        """At the top of every run."""
        if self.state.born is None:
            self.change(born=workflow.now(), plan_id=workflow.uuid4().hex[:12])
            self.enter(self.state.step)
        self._describe()

    def enter(self, step: Step) -> None:
        """A step that goes on keeps its time; waiting keeps that of all its looks."""
        before = self.state
        if step == before.step and before.since is not None:
            return
        now = workflow.now()
        deadline = now + DEADLINES[step] if step in DEADLINES else None
        if step in ("Wait", "Finish"):
            deadline = before.ready_by
        self.change(step=step, since=now, deadline=deadline, blocked_by=before.blocked_by if step == "Wait" else "")
        self._show()

    def block(self, why: str) -> None:
        """Say what is waited for."""
        if why != self.state.blocked_by:
            self.change(blocked_by=why)
            self._show()

    def end(self, ending: Ending, why: str = "", *, nodes: Iterable[str] = ()) -> None:
        """How it ends; what was found first is what is said."""
        over = CommandOver(proposal_id=self.state.proposal.id, ending=ending, why=why[:300], nodes=tuple(nodes))
        self.change(over=(self.state.over or over).model_copy(update={"keep_until": self.state.keep_until}))

    def stop(self, ending: Ending, why: str, *, nodes: Iterable[str] = ()) -> Step:
        """Undo, and say why."""
        self.end(ending, why, nodes=nodes)
        return "Undo"

    def late(self) -> bool:
        deadline = self.state.deadline
        return deadline is not None and workflow.now() >= deadline

    async def act(self, act: Act, summary: str, *, until: datetime | None, stoppable: bool = False) -> CommandActed:
        """One live act on all candidates; without `until` it is tried for ever. A `stoppable` one ends when it is
        recalled. Raises ActivityError."""
        state = self.state
        asked = CommandAsked(
            workflow_id=workflow.info().workflow_id,
            reason=state.proposal.reason,
            candidates=state.proposal.candidates,
            replacements=state.claims,
            why=state.over.why if state.over else state.proposal.why,
        )
        bound = {"schedule_to_close_timeout": max(until - workflow.now(), timedelta(seconds=1))} if until else {}
        options = {**named(COMMAND, summary), **bound}
        if not stoppable:
            acted: CommandActed = await workflow.execute_activity_method(act, asked, **options)
            return acted
        # What is put back next must not be deleted by a try that is still under way.
        options["cancellation_type"] = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        under_way = workflow.start_activity_method(act, asked, **options)
        stopping = asyncio.create_task(self._stop_when_recalled(under_way))
        try:
            acted = await under_way
        finally:
            stopping.cancel()
        return acted

    async def _stop_when_recalled(self, under_way: workflow.ActivityHandle[CommandActed]) -> None:
        await workflow.wait_condition(lambda: bool(self.state.recalled))
        under_way.cancel()

    async def until(self, happened: Callable[[], bool], moment: datetime | None, summary: str) -> None:
        """Sleep until something happened, it is recalled, or a moment or the step's deadline has come. The run may roll
        over."""
        until = min((one for one in (moment, self.state.deadline) if one), default=None)
        if until is not None and until <= workflow.now():
            return
        if roll_due():
            raise RollOver
        try:
            await workflow.wait_condition(
                lambda: happened() or bool(self.state.recalled) or roll_due(),
                timeout=until - workflow.now() if until else None,
                timeout_summary=summary if until else None,
            )
        except TimeoutError:
            return

    async def ask(self) -> str:
        """Ask for permits, or for them to last longer, where it is time; names a NodePool that nobody answers for."""
        if not ask_due(self.state, workflow.now()):
            return ""
        asked = to_ask(self.state)
        self.change(renewed=workflow.now())
        told = await asyncio.gather(*(self._ask_for(one) for one in asked))
        return next((one.pool for one, heard in zip(asked, told, strict=True) if not heard), "")

    async def _ask_for(self, one: Leaving) -> bool:
        asked = PermitAsked(
            claim_name=one.claim,
            claim_uid=one.claim_uid,
            workflow_id=workflow.info().workflow_id,
            reason=self.state.proposal.reason,
            since=self.state.born or workflow.now(),
            begins_within=BEGINS_WITHIN,
        )
        return await self._tell(ids.nodepool(self.state.cluster, one.pool), "asked", asked)

    async def withdraw(self, *, used: bool = False) -> None:
        """Hand all permits back, and take back the wishes for more; `used`: the nodes are on their way."""
        await asyncio.gather(*(self._withdraw(one, used) for one in self.state.proposal.candidates))

    async def _withdraw(self, one: Leaving, used: bool) -> None:
        who = workflow.info().workflow_id
        withdrawn = PermitWithdrawn(claim_uid=one.claim_uid, workflow_id=who, used=used)
        await self._tell(ids.nodepool(self.state.cluster, one.pool), "withdrawn", withdrawn)

    async def tell_cluster(self, signal: str, message: CommandOver | CommandMade) -> None:
        await self._tell(ids.cluster(self.state.cluster), signal, message)

    async def _tell(self, workflow_id: str, signal: str, message: object) -> bool:
        """False: nobody is there."""
        try:
            await workflow.get_external_workflow_handle(workflow_id).signal(signal, message)
        except FailureError:
            return False
        return True

    def renewal(self) -> datetime | None:
        return renewal(self.state)

    def _show(self) -> None:
        workflow.upsert_search_attributes(visibility.of_command(self.state))
        self._describe()

    def _describe(self) -> None:
        workflow.set_current_details(current_details.of_command(self.state))
