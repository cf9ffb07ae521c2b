"""Provisioning: pods that cannot be placed become NodeClaims, and equal NodeClaims launch together.

One per cluster. It waits for a batch of demand, has it planned where the caches are, freezes one request per launch
group in its history, and only then has EC2 called. Each group runs by itself: a slow one holds up nothing.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.planner_host import WatchActivities
from tenure.model.discovered_capacity import Learnt, LearntSeen
from tenure.model.launch import latest
from tenure.model.observations import DemandSeen, Joining, MarksSeen
from tenure.model.provisioning import PlanOutcome, PlanRequest
from tenure.model.workflow_states import BatchWindow, ProvisioningState
from workflows import current_details, ids
from workflows.activity_options import PLAN, ROLL_AT_EVENTS, named
from workflows.launch_groups import LaunchGroups

PLAN_AGAIN_IN = timedelta(seconds=2)
PLAN_SLOWEST = timedelta(seconds=10)
"""After a pass that could not be made: no host, or caches too old. Longer when it lasts."""
AT_LEAST = timedelta(milliseconds=10)
"""The shortest batch window."""


@workflow.defn
class ProvisioningWorkflow:
    @workflow.init
    def __init__(self, state: ProvisioningState) -> None:
        self._state = state
        self._groups = LaunchGroups(lambda: self._state, self._change)
        self._blocked = 0

    @workflow.run
    async def run(self, state: ProvisioningState) -> None:
        self._groups.resume()
        while True:
            self._describe()
            await workflow.wait_condition(lambda: self._state.demand is not None or self._may_roll())
            if self._may_roll():
                workflow.continue_as_new(self._state)
            await self._batch()
            await self._pass()

    @workflow.signal(description="From the watch: pods that wait for a node")
    def demand(self, demand: DemandSeen) -> None:
        known = self._state.demand
        if known is None or demand.number > known.number:
            at_once = demand.at_once or (known is not None and known.at_once)
            self._change(demand=demand.model_copy(update={"at_once": at_once}))

    @workflow.signal(description="From a NodeClaim that no plan made: it launches with others that are alike")
    def join(self, one: Joining) -> None:
        """A NodeClaim that no plan made wants to launch with others that are alike."""
        self._groups.join(one)

    @workflow.signal(description="From a launch, or the watch: what EC2 could not give, or took back")
    def refused(self, seen: MarksSeen) -> None:
        """What EC2 could not give to a NodeClaim that launches itself, or took back from nodes."""
        marks = latest((*self._state.unavailable, *seen.unavailable), workflow.now())
        self._change(unavailable=marks, storm=seen.storm or self._state.storm)

    @workflow.signal(description="From the watch: what nodes have shown of their machines")
    def learnt(self, seen: LearntSeen) -> None:
        self._change(kept=self._state.kept.after(seen, workflow.now()))

    @workflow.signal(description="From a worker at its start: how long a batch of pods stays open")
    def window_set(self, window: BatchWindow) -> None:
        """A worker started; its settings are newer than those of workers before it."""
        self._change(window=window)

    @workflow.query(description="What nodes have shown of their machines, for launches")
    def machines(self) -> Learnt:
        """What nodes have shown of their machines, for launches."""
        return self._state.kept.learnt

    @workflow.query(description="All that the workflow knows")
    def state(self) -> ProvisioningState:
        return self._state

    async def _batch(self) -> None:
        """The window closes when no newer pod has come for `idle`, or `longest` after it opened (reference 2.1).

        Pods that lost the place that they were given have been through it: they are planned at once. Any other window
        is a timer, be it over already: whether there is one must not hang on what time it was taken to be."""
        window = self._state.window
        opened = workflow.now()
        while self._state.demand is not None:
            known = self._state.demand
            idle_ends = min(known.newest + window.idle, opened + window.longest)
            left = idle_ends - workflow.now()
            if known.at_once or not await self._more(known, max(left, AT_LEAST)):
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
        return demand is not None and (demand.newest > known.newest or demand.at_once)

    async def _pass(self) -> None:
        """Plan once. Demand that came meanwhile is kept for the next pass; demand of a failed pass comes back."""
        demand = self._state.demand
        marks = tuple(mark for mark in self._state.unavailable if mark.until > workflow.now())
        plan_id = self._state.plan_id or workflow.uuid4().hex[:12]
        self._change(demand=None, passes=self._state.passes + 1, plan_id=plan_id, unavailable=marks)
        storm, learnt = self._state.storm, self._state.kept.learnt
        outcome = await self._plan(PlanRequest(plan_id=plan_id, unavailable=marks, storm=storm, learnt=learnt))
        self._change(blocked_by=outcome.blocked, plan_id=plan_id if outcome.blocked else "")
        self._blocked = self._blocked + 1 if outcome.blocked else 0
        for draft in outcome.drafts:
            self._groups.begin(draft)
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
        return due and not self._groups.busy

    def _describe(self) -> None:
        workflow.set_current_details(current_details.of_provisioning(self._state))
