"""The Provisioning workflow: creates NodeClaims for pending pods, and launches equal NodeClaims together.

There is one per cluster. It waits for a batch of pods, lets the planner host plan them, records one request per launch
group in its history, and only then calls EC2. Groups run concurrently, so a slow one does not delay others.
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
from tenure.tracing import workflow_spans
from workflows import activity_options, current_details, ids
from workflows.activity_options import PLAN, is_unpolled, with_summary
from workflows.current_details import IgnoresCancellation, publish_details
from workflows.launch_groups import LaunchGroups
from workflows.timers import wait_at_most

PLAN_RETRY_AFTER = timedelta(seconds=2)
MAX_PLAN_RETRY_AFTER = timedelta(seconds=10)
"""Delays after a blocked pass, for example without a host or with outdated caches. The delay doubles up to this."""
MIN_BATCH_WINDOW = timedelta(milliseconds=10)


@workflow.defn(name="Provisioning")
class ProvisioningWorkflow(IgnoresCancellation):
    how_to_stop = "scale the Deployment of the worker to zero"

    @workflow.init
    def __init__(self, state: ProvisioningState) -> None:
        self._state = state
        self._groups = LaunchGroups(lambda: self._state, self._update_state)
        self._blocked_passes = 0
        self._host_lost = False
        """No host polled the plan queue for the last pass."""

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

    @workflow.signal(description="From a NodeClaim without a launch group: launch it with equal NodeClaims")
    def join_launch_group(self, nodeclaim: LaunchGroupJoinRequest) -> None:
        """Launch a NodeClaim that no plan created, or whose plan left it out, together with equal ones."""
        self._groups.add_joining(nodeclaim)

    @workflow.signal(description="From a launch or the watch: offerings that are unavailable or were interrupted")
    def offerings_unavailable(self, observed: ObservedUnavailableOfferings) -> None:
        """Record offerings that EC2 could not provide to an individual launch, or that it interrupted."""
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
        """The settings of a worker that has just started replace those of earlier workers."""
        self._update_state(window=window)

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> ProvisioningState:
        return self._state

    async def _wait_for_batch(self) -> None:
        """The window closes after `idle` without a newer pod, at the latest `longest` after it opened (reference 2.1).

        Pods that lost their planned node have already waited and are planned immediately. All other windows start a
        timer, even if the window is already over: whether a timer starts must not depend on the time at replay."""
        window = self._state.window
        opened = workflow.now()
        while self._state.demand is not None:
            previous = self._state.demand
            idle_ends = min(previous.newest_pod_at + window.idle, opened + window.longest)
            remaining = idle_ends - workflow.now()
            if previous.at_once or not await self._wait_for_newer_pod(previous, max(remaining, MIN_BATCH_WINDOW)):
                return

    async def _wait_for_newer_pod(self, previous: ObservedDemand, timeout: timedelta) -> bool:
        """Whether a newer pod arrived before the window closed."""
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
        """Plan once. New demand during the pass is for the next pass; the demand of a blocked pass is restored."""
        demand, started_at = self._state.demand, workflow.now()
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
                backoffs=self._state.backoffs,
                released=self._state.released,
            )
        )
        workflow_spans.record_plan(outcome, started_at)
        if outcome.backoffs is not None:
            self._update_state(backoffs=outcome.backoffs)
        if outcome.released is not None:
            self._update_state(released=outcome.released)
        self._update_state(blocked_by=outcome.blocked, plan_id=plan_id if outcome.blocked else "")
        self._blocked_passes = self._blocked_passes + 1 if outcome.blocked else 0
        for draft in outcome.drafts:
            self._groups.start_group(draft)
        if outcome.blocked:
            self._set_current_details()
            await self._wait_for_retry(outcome.blocked)
            if self._state.demand is None:
                self._update_state(demand=demand)

    async def _wait_for_retry(self, why: str) -> None:
        """While there is no host, none signals demand. The next one does, and can plan at once."""
        pause = min(MAX_PLAN_RETRY_AFTER, PLAN_RETRY_AFTER * 2 ** max(0, min(self._blocked_passes, 10) - 3))
        least = PLAN_RETRY_AFTER if self._host_lost else pause
        await workflow.sleep(least, summary=why[:100])
        if pause > least:
            await wait_at_most(pause - least, lambda: self._state.demand is not None, "demand from another host")

    async def _plan(self, request: PlanRequest) -> PlanOutcome:
        cluster = self._state.cluster
        options = {**with_summary(PLAN, f"plan pass {self._state.passes}"), "task_queue": ids.plan_queue(cluster)}
        self._host_lost = False
        try:
            return await workflow.execute_activity_method(PlannerHostActivities.plan_capacity, request, **options)
        except ActivityError as error:
            self._host_lost = is_unpolled(error)
            return PlanOutcome(plan_id=request.plan_id, blocked=f"no plan: {error.cause or error}"[:200])

    def _update_state(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _may_continue_as_new(self) -> bool:
        """Continue as new while no group runs, if possible. Otherwise the next run repeats the requests with their
        tokens.

        Pending demand does not wait for the groups.
        """
        events, limit = workflow.info().get_current_history_length(), activity_options.CONTINUE_AS_NEW_AT_EVENTS
        if events >= 4 * limit:
            return True
        due = workflow.info().is_continue_as_new_suggested() or events >= 2 * limit
        return due and not self._groups.has_running_groups

    def _set_current_details(self) -> None:
        publish_details(current_details.render_provisioning(self._state))
