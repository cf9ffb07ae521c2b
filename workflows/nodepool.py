"""The NodePool workflow: status of the NodePool, replicas of a static NodePool, and permits for voluntary disruption.

Launches, interruptions, drains and garbage collection do not depend on it, so a problem here blocks only voluntary
disruption of this NodePool. `disruption/permits.py` has the permits, `pausable.py` the pauses, and `static_capacity.py`
the nodes of a static NodePool.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.nodepool.status import NodePoolActivities
from tenure.model.disruption.commands import PermitRevoked
from tenure.model.disruption.permits import RecentDisruptions, ReservationResult
from tenure.model.nodeclaim.requests import NodePoolRequest
from tenure.model.observations import ObservedNodePool, StartupOutcome
from tenure.model.operator_requests import PauseAnnotationRequest
from tenure.model.signals import PermitRelease, PermitRequest
from tenure.model.workflow_states import NodePoolState
from tenure.policy.disruption.limits import longest_rate
from tenure.policy.disruption.permits import merge_records
from tenure.policy.lifecycle.pauses import describe_pause, is_pause_active, pause_from_annotation, recheck_at
from tenure.policy.nodepool import add_outcomes
from workflows import current_details
from workflows.activity_options import PATCH, is_continue_as_new_due, with_summary
from workflows.approvals import RolloutApprovals
from workflows.current_details import IgnoresCancellation, publish_details
from workflows.disruption.permits import DisruptionPermits
from workflows.pausable import Pausable, PauseController
from workflows.rollout import RolloutController
from workflows.static_capacity import ReplicaController
from workflows.timers import WakeupTimer, stop_background_tasks

STATUS_TIMEOUT: Final = timedelta(minutes=1)
"""Time limit of a status update, since permits and replicas wait for it. It is repeated after the same time."""
REJECTED_STATUS_INTERVAL: Final = timedelta(minutes=10)
"""After this time, a rejected status is written once more: no signal reports a corrected webhook or CRD."""


@workflow.defn(name="NodePool")
class NodePoolWorkflow(Pausable, RolloutApprovals, IgnoresCancellation):
    how_to_stop = "delete its NodePool; to stop disruption only, pause it"

    @workflow.init
    def __init__(self, state: NodePoolState) -> None:
        self._state = state
        self._written_observation = ObservedNodePool()
        self._has_new_startup_failure = False
        """A NodeClaim failed to start since the status was last written."""
        self._status_retry_at: datetime | None = None
        target = PauseAnnotationRequest(kind="NodePool", name=state.name)
        self._pause_controller = PauseController(
            lambda: target,
            lambda: self._state,
            self._update_state,
            on_changed=self._on_pause_changed,
            describe_effect=self._pause_effect,
        )
        self._rollouts = RolloutController(
            lambda: self._state, self._update_state, on_opened=lambda: self._permits.reevaluate()
        )
        self._wakeup_timer = WakeupTimer()
        self._permits = DisruptionPermits(lambda: self._state, self._update_state, self._blocked_by, self._rollouts)
        self._replicas = ReplicaController(lambda: self._state, self._update_state, self._blocked_by)

    @workflow.run
    async def run(self, state: NodePoolState) -> None:
        pause_task = asyncio.create_task(self._pause_controller.run())
        revocation_task = asyncio.create_task(self._permits.send_revocations())
        try:
            while self._state.observed.exists:
                await self._run_cycle()
                if is_continue_as_new_due():
                    await stop_background_tasks([pause_task], lambda: self._pause_controller.is_writing)
                    await self._permits.send_remaining()
                    workflow.continue_as_new(self._state)
        finally:
            pause_task.cancel()
            revocation_task.cancel()

    async def _run_cycle(self) -> None:
        self._set_current_details()
        await self._wait_for_change()
        if self._state.observed != self._written_observation or self._must_write_status():
            if not self._must_write_status() and self._state.observed.is_headroom_only(self._written_observation):
                self._written_observation = self._state.observed
            else:
                await self._write_status()
            self._permits.reevaluate()
        if self._replicas.is_due():
            await self._replicas.run_step(self._blocked_by()[0])
        if self._rollouts.is_due():
            await self._rollouts.run_step()
        await self._permits.process_requests()

    @workflow.signal(description="From the watch: the current state of the NodePool")
    def observe(self, observed: ObservedNodePool) -> None:
        if observed.number <= self._state.observed.number:
            return
        previous = self._state.observed
        self._update_state(observed=observed)
        if not observed.exists:
            return
        self._pause_controller.observe_annotation(observed.pause)
        if observed.cluster_pause != previous.cluster_pause:
            self._on_pause_changed()

    @workflow.signal(description="From a NodeClaim or a command: a request for a disruption permit")
    def request_permit(self, request: PermitRequest) -> None:
        self._permits.request_permit(request)

    @workflow.signal(description="From a NodeClaim or a command: its permit is used or no longer needed")
    def release_permit(self, release: PermitRelease) -> None:
        self._permits.release_permit(release)

    @workflow.signal(description="From a paused NodeClaim: revoke its permits")
    def revoke_permits(self, revocation: PermitRevoked) -> None:
        """One of its NodeClaims is paused, so the holder of its permit must return it."""
        self._permits.revoke(revocation.why, revocation.claim_uid)

    @workflow.signal(description="From the Cluster workflow: permit reservations of other NodePools")
    def cluster_permit_decided(self, response: ReservationResult) -> None:
        self._permits.on_reservation_response(response)

    @workflow.signal(description="From a NodeClaim: it failed to start")
    def startup_failed(self, failure: StartupOutcome) -> None:
        """One of its NodeClaims failed to launch or to register."""
        self._update_state(registrations=add_outcomes(self._state.registrations, (failure,)))
        self._has_new_startup_failure = True

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> NodePoolState:
        return self._state

    @workflow.query(description="Active pauses of the NodePool and of the cluster")
    def pauses(self) -> tuple[str, ...]:
        return current_details.describe_pauses(self._state, workflow.now())

    async def _wait_for_change(self) -> None:
        """Sleep until a change or the next due time: a budget poll for pending requests, replicas, or the rollout."""
        budget = self._permits.next_poll_at
        due_times = (budget, self._replicas.next_at(), self._rollouts.next_at(), self._status_retry_at)
        wakeup_times = [one for one in due_times if one is not None]
        await self._wakeup_timer.wait_until(
            lambda: (
                self._state.observed != self._written_observation
                or self._must_write_status()
                or self._permits.has_work
                or self._replicas.is_due()
                or self._rollouts.is_due()
                or is_continue_as_new_due()
            ),
            min(wakeup_times, default=None),
            "poll the budget" if budget else "before the next step to spec.replicas",
        )

    def _must_write_status(self) -> bool:
        """Whether the status must be written without a new observation."""
        is_retry_due = self._status_retry_at is not None and self._status_retry_at <= workflow.now()
        return self._has_new_startup_failure or is_retry_due

    async def _write_status(self) -> None:
        self._written_observation, self._has_new_startup_failure = self._state.observed, False
        self._status_retry_at = None
        if not self._written_observation.exists:
            return
        span = longest_rate(self._written_observation.rules, self._written_observation.unread)
        request = NodePoolRequest(
            name=self._state.name,
            gate_off=self._written_observation.static == "off",
            registrations=self._state.registrations,
            recent_disruptions=RecentDisruptions(lookback=span, past=self._state.past, permits=self._state.permits)
            if span
            else RecentDisruptions(),
        )
        options = {**with_summary(PATCH, "write the status"), "schedule_to_close_timeout": STATUS_TIMEOUT}
        try:
            written = await workflow.execute_activity_method(
                NodePoolActivities.update_nodepool_status, request, **options
            )
            if written.registrations:
                # Startup failures since the activity started count too.
                self._update_state(
                    registrations=add_outcomes(written.registrations, self._state.registrations.outcomes)
                )
            if written.recent_disruptions.past:
                past = merge_records(written.recent_disruptions.past, self._state.past, since=workflow.now() - span)
                self._update_state(past=past)
        except ActivityError as error:
            is_rejected = isinstance(error.cause, ApplicationError) and error.cause.non_retryable
            self._status_retry_at = workflow.now() + (REJECTED_STATUS_INTERVAL if is_rejected else STATUS_TIMEOUT)
            self._update_state(blocked_by=f"the status could not be written: {error.cause or error}"[:200])

    def _blocked_by(self) -> tuple[str, datetime | None]:
        """The pause that blocks voluntary disruption of the NodePool's nodes, and its end; empty without one."""
        now, state = workflow.now(), self._state
        cluster_pause = pause_from_annotation(state.observed.cluster_pause)
        if cluster_pause and is_pause_active(cluster_pause, now):
            return f"the cluster {describe_pause(cluster_pause)}", recheck_at(cluster_pause)
        return self._pause_controller.describe_active_pause(now), recheck_at(state.pause)

    def _on_pause_changed(self) -> None:
        """Apply a pause or its end: revoke permits, and send the cause to pending requests."""
        blocked_by, _ = self._blocked_by()
        if blocked_by:
            self._permits.revoke(blocked_by)
        self._permits.reevaluate(renotify=True)
        self._set_current_details()

    def _update_state(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _pause_effect(self) -> str:
        return "Its disruption permits are revoked; nodes whose NodeClaim is being deleted still terminate"

    def _set_current_details(self) -> None:
        blocked_by, _ = self._blocked_by()
        waits_for = self._replicas.waits_for(blocked_by)
        publish_details(current_details.render_nodepool(self._state, blocked_by, waits_for, self._rollouts.status_text))
