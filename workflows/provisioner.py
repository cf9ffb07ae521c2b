"""Provisioning: pods that cannot be placed become NodeClaims, and equal NodeClaims launch together.

One per cluster. It waits for a batch of demand, has it planned where the caches are, freezes one request per launch
group in its history, and only then has EC2 called. Each group runs by itself: a slow one holds up nothing.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.planner_host import PlannerHostActivities
from tenure.model.discovered_capacity import ObservedCapacity
from tenure.model.launch import latest_unavailable_offerings
from tenure.model.observations import LaunchGroupJoinRequest, ObservedDemand, ObservedUnavailableOfferings
from tenure.model.plan import PlanOutcome, PlanRequest
from tenure.model.workflow_states import BatchWindow, ProvisioningState
from workflows import activity_options, current_details, ids
from workflows.activity_options import PLAN, with_summary
from workflows.launch_groups import LaunchGroups

PLAN_RETRY_AFTER = timedelta(seconds=2)
MAX_PLAN_RETRY_AFTER = timedelta(seconds=10)
"""After a pass that could not be made: no host, or caches too old. Longer when it lasts."""
MIN_BATCH_WINDOW = timedelta(milliseconds=10)
"""The shortest batch window."""


@workflow.defn(name="Provisioning")
class ProvisioningWorkflow:
    @workflow.init
    def __init__(self, state: ProvisioningState) -> None:
        self._state = state
        self._groups = LaunchGroups(lambda: self._state, self._update_state)
        self._blocked_passes = 0

    @workflow.run
    async def run(self, state: ProvisioningState) -> None:
        self._groups.resume()
        while True:
            self._set_current_details()
            await workflow.wait_condition(lambda: self._state.demand is not None or self._may_continue_as_new())
            if self._may_continue_as_new():
                workflow.continue_as_new(self._state)
            await self._wait_for_batch()
            await self._run_pass()

    @workflow.signal(description="From the watch: pending pods")
    def pending_pods(self, demand: ObservedDemand) -> None:
        previous = self._state.demand
        if previous is None or demand.number > previous.number:
            at_once = demand.at_once or (previous is not None and previous.at_once)
            self._update_state(demand=demand.model_copy(update={"at_once": at_once}))

    @workflow.signal(description="From a NodeClaim that no plan created: launch it with equal NodeClaims")
    def join_launch_group(self, nodeclaim: LaunchGroupJoinRequest) -> None:
        """A NodeClaim that no plan made wants to launch with others that are alike."""
        self._groups.add_joining(nodeclaim)

    @workflow.signal(description="From a launch or the watch: offerings that are unavailable or were interrupted")
    def offerings_unavailable(self, observed: ObservedUnavailableOfferings) -> None:
        """What EC2 could not give to a NodeClaim that launches itself, or took back from nodes."""
        unavailable_offerings = latest_unavailable_offerings(
            (*self._state.unavailable, *observed.unavailable), workflow.now()
        )
        self._update_state(
            unavailable=unavailable_offerings, burst_ends_at=observed.burst_ends_at or self._state.burst_ends_at
        )

    @workflow.signal(description="From the watch: memory capacity discovered on nodes")
    def capacity_discovered(self, observed: ObservedCapacity) -> None:
        self._update_state(
            discovered_capacity=self._state.discovered_capacity.apply_observation(observed, workflow.now())
        )

    @workflow.signal(description="From a worker at its start: how long a batch of pods stays open")
    def set_batch_window(self, window: BatchWindow) -> None:
        """A worker started; its settings are newer than those of workers before it."""
        self._update_state(window=window)

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> ProvisioningState:
        return self._state

    async def _wait_for_batch(self) -> None:
        """The window closes when no newer pod has come for `idle`, or `longest` after it opened (reference 2.1).

        Pods that lost the place that they were given have been through it: they are planned at once. Any other window
        is a timer, be it over already: whether there is one must not hang on what time it was taken to be."""
        window = self._state.window
        opened = workflow.now()
        while self._state.demand is not None:
            previous = self._state.demand
            idle_ends = min(previous.newest_pod_at + window.idle, opened + window.longest)
            remaining = idle_ends - workflow.now()
            if previous.at_once or not await self._wait_for_newer_pod(previous, max(remaining, MIN_BATCH_WINDOW)):
                return

    async def _wait_for_newer_pod(self, previous: ObservedDemand, timeout: timedelta) -> bool:
        """A newer pod came before the window closed."""
        try:
            await workflow.wait_condition(
                lambda: self._has_newer_pod(previous), timeout=timeout, timeout_summary="batch window"
            )
        except TimeoutError:
            return False
        return True

    def _has_newer_pod(self, previous: ObservedDemand) -> bool:
        demand = self._state.demand
        return demand is not None and (demand.newest_pod_at > previous.newest_pod_at or demand.at_once)

    async def _run_pass(self) -> None:
        """Plan once. Demand that came meanwhile is kept for the next pass; demand of a failed pass comes back."""
        demand = self._state.demand
        unavailable_offerings = tuple(mark for mark in self._state.unavailable if mark.until > workflow.now())
        plan_id = self._state.plan_id or workflow.uuid4().hex[:12]
        self._update_state(
            demand=None, passes=self._state.passes + 1, plan_id=plan_id, unavailable=unavailable_offerings
        )
        interruption_burst, discovered_capacity = self._state.burst_ends_at, self._state.discovered_capacity.discovered
        outcome = await self._plan(
            PlanRequest(
                plan_id=plan_id,
                unavailable=unavailable_offerings,
                burst_ends_at=interruption_burst,
                discovered=discovered_capacity,
            )
        )
        self._update_state(blocked_by=outcome.blocked, plan_id=plan_id if outcome.blocked else "")
        self._blocked_passes = self._blocked_passes + 1 if outcome.blocked else 0
        for draft in outcome.drafts:
            self._groups.start_group(draft)
        if outcome.blocked:
            self._set_current_details()
            pause = min(MAX_PLAN_RETRY_AFTER, PLAN_RETRY_AFTER * 2 ** max(0, min(self._blocked_passes, 10) - 3))
            await workflow.sleep(pause, summary=outcome.blocked[:100])
            if self._state.demand is None:
                self._update_state(demand=demand)

    async def _plan(self, request: PlanRequest) -> PlanOutcome:
        cluster = self._state.cluster
        options = {**with_summary(PLAN, f"plan pass {self._state.passes}"), "task_queue": ids.plan_queue(cluster)}
        try:
            return await workflow.execute_activity_method(PlannerHostActivities.plan_capacity, request, **options)
        except ActivityError as error:
            return PlanOutcome(plan_id=request.plan_id, blocked=f"no plan: {error.cause or error}"[:200])

    def _update_state(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _may_continue_as_new(self) -> bool:
        """Continue as new between groups if possible. Otherwise the next run repeats the requests with their tokens.

        Demand never waits for it.
        """
        events, limit = workflow.info().get_current_history_length(), activity_options.CONTINUE_AS_NEW_AT_EVENTS
        if events >= 4 * limit:
            return True
        due = workflow.info().is_continue_as_new_suggested() or events >= 2 * limit
        return due and not self._groups.has_running_groups

    def _set_current_details(self) -> None:
        workflow.set_current_details(current_details.render_provisioning(self._state))
