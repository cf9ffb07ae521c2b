"""Provisioning: pods that cannot be placed become NodeClaims, and equal NodeClaims launch together.

One per cluster. It waits for a batch of demand, has it planned where the caches are, freezes one request per launch
group in its history, and only then has EC2 called. Each group runs by itself: a slow one holds up nothing.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.launching import LaunchActivities
from activities.watch import WatchActivities
from model.catalogue import UnavailableOffering
from model.coordination import ProvisioningState
from model.launches import LaunchGroup, LaunchPrepared, LaunchRefused
from model.learnt import Learnt, LearntSeen
from model.observations import DemandSeen
from model.plans import LaunchDraft, PlanOutcome, PlanRequest
from model.steps import ClaimRef, GroupRefused
from workflows import details, ids
from workflows.options import CREATE_FLEET, PATCH, PLAN, PREPARE, ROLL_AT_EVENTS, named

PLAN_AGAIN_IN = timedelta(seconds=2)
PLAN_SLOWEST = timedelta(seconds=10)
"""After a pass that could not be made: no host, or caches too old. Longer when it lasts."""


@workflow.defn
class ProvisioningWorkflow:
    @workflow.init
    def __init__(self, state: ProvisioningState) -> None:
        self._state = state
        self._groups: set[asyncio.Task[None]] = set()
        self._blocked = 0

    @workflow.run
    async def run(self, state: ProvisioningState) -> None:
        for group in self._state.groups:
            self._start(self._launch(group))
        for draft in self._state.drafts:
            self._start(self._freeze(draft))
        while True:
            self._describe()
            await workflow.wait_condition(lambda: self._state.demand is not None or self._may_roll())
            if self._may_roll():
                workflow.continue_as_new(self._state)
            await self._batch()
            await self._pass()

    @workflow.signal
    def demand(self, demand: DemandSeen) -> None:
        if self._state.demand is None or demand.number > self._state.demand.number:
            self._change(demand=demand)

    @workflow.signal
    def learnt(self, seen: LearntSeen) -> None:
        self._change(kept=self._state.kept.after(seen, workflow.now()))

    @workflow.query
    def machines(self) -> Learnt:
        """What nodes have shown of their machines, for launches."""
        return self._state.kept.learnt

    @workflow.query
    def state(self) -> ProvisioningState:
        return self._state

    async def _batch(self) -> None:
        """The window closes when no newer pod has come for `idle`, or `longest` after it opened (reference 2.1)."""
        window = self._state.window
        opened = workflow.now()
        while self._state.demand is not None:
            known = self._state.demand
            idle_ends = min(known.newest + window.idle, opened + window.longest)
            left = idle_ends - workflow.now()
            if left <= timedelta(0):
                return
            if not await self._more(known, left):
                return

    async def _more(self, known: DemandSeen, left: timedelta) -> bool:
        """A newer pod came before the window closed."""
        try:
            await workflow.wait_condition(lambda: self._newer(known), timeout=left, timeout_summary="batch window")
        except TimeoutError:
            return False
        return True

    def _newer(self, known: DemandSeen) -> bool:
        demand = self._state.demand
        return demand is not None and demand.newest > known.newest

    async def _pass(self) -> None:
        """Plan once. Demand that came meanwhile is kept for the next pass; demand of a failed pass comes back."""
        demand = self._state.demand
        marks = tuple(mark for mark in self._state.unavailable if mark.until > workflow.now())
        plan_id = self._state.plan_id or workflow.uuid4().hex[:12]
        self._change(demand=None, passes=self._state.passes + 1, plan_id=plan_id, unavailable=marks)
        outcome = await self._plan(PlanRequest(plan_id=plan_id, unavailable=marks, learnt=self._state.kept.learnt))
        self._change(blocked_by=outcome.blocked, plan_id=plan_id if outcome.blocked else "")
        self._blocked = self._blocked + 1 if outcome.blocked else 0
        for draft in outcome.drafts:
            self._change(drafts=(*self._state.drafts, draft))
            self._start(self._freeze(draft))
        if outcome.blocked:
            self._describe()
            pause = min(PLAN_SLOWEST, PLAN_AGAIN_IN * 2 ** max(0, min(self._blocked, 10) - 3))
            await workflow.sleep(pause, summary=outcome.blocked[:100])
            if self._state.demand is None:
                self._change(demand=demand)

    async def _plan(self, request: PlanRequest) -> PlanOutcome:
        cluster = self._state.cluster
        options = {**named(PLAN, f"plan pass {self._state.passes}"), "task_queue": ids.plan_queue(cluster)}
        try:
            return await workflow.execute_activity_method(WatchActivities.plan_capacity, request, **options)
        except ActivityError as error:
            return PlanOutcome(plan_id=request.plan_id, blocked=f"no plan: {error.cause or error}"[:200])

    async def _freeze(self, draft: LaunchDraft) -> None:
        """From a draft to a group with a frozen request and so a token; or to a refusal that the members hear."""
        try:
            prepared = await workflow.execute_activity_method(
                LaunchActivities.prepare_group, draft, **named(PREPARE, f"prepare {draft.group_id}")
            )
        except ActivityError as error:
            await self._refuse(draft, _failed(error))
            return
        match prepared.preparation:
            case LaunchRefused() as refused:
                await self._refuse(draft, refused)
            case LaunchPrepared(request=request):
                group = LaunchGroup(group_id=draft.group_id, pool=draft.pool, members=draft.members, request=request)
                self._change(drafts=self._without(draft), groups=(*self._state.groups, group))
                await self._launch(group)

    async def _launch(self, group: LaunchGroup) -> None:
        summary = f"CreateFleet {group.group_id}: {len(group.members)} x {group.pool}"
        try:
            outcome = await workflow.execute_activity_method(
                LaunchActivities.launch_group, group, **named(CREATE_FLEET, summary)
            )
        except ActivityError as error:
            outcome = None
            await self._refuse_members(group, _failed(error))
        groups = tuple(one for one in self._state.groups if one.group_id != group.group_id)
        marks = outcome.unavailable if outcome else ()
        self._change(groups=groups, unavailable=_latest((*self._state.unavailable, *marks)))

    async def _refuse(self, draft: LaunchDraft, refused: LaunchRefused) -> None:
        await self._refuse_members(draft, refused)
        self._change(drafts=self._without(draft))

    async def _refuse_members(self, group: LaunchDraft | LaunchGroup, refused: LaunchRefused) -> None:
        told = GroupRefused(
            group_id=group.group_id,
            members=tuple(ClaimRef(name=one.name, uid=one.uid) for one in group.members),
            reason=refused.reason,
            message=refused.message,
            final=refused.final,
        )
        await workflow.execute_activity_method(
            LaunchActivities.refuse_group, told, **named(PATCH, f"refuse {group.group_id}: {refused.reason}")
        )

    def _without(self, draft: LaunchDraft) -> tuple[LaunchDraft, ...]:
        return tuple(one for one in self._state.drafts if one.group_id != draft.group_id)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._groups.add(task)
        task.add_done_callback(self._groups.discard)

    def _change(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _may_roll(self) -> bool:
        """Between groups when there is such a moment; else all the same, and the next run asks again with their tokens.

        Demand never waits for it.
        """
        events = workflow.info().get_current_history_length()
        if events >= 4 * ROLL_AT_EVENTS:
            return True
        due = workflow.info().is_continue_as_new_suggested() or events >= 2 * ROLL_AT_EVENTS
        return due and not self._groups

    def _describe(self) -> None:
        workflow.set_current_details(details.of_provisioning(self._state))


def _latest(marks: Iterable[UnavailableOffering]) -> tuple[UnavailableOffering, ...]:
    """One for each offering, however many groups were refused it."""
    return tuple({(one.instance_type, one.zone, one.capacity_type): one for one in marks}.values())


def _failed(error: ActivityError) -> LaunchRefused:
    """Not the members' fault and perhaps mended soon: to give them up would only have them planned again at once."""
    return LaunchRefused(reason="LaunchFailed", message=str(error.cause or error), final=False)
