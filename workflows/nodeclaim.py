"""The NodeClaim workflow: launch, registration, initialization, ready, drain and termination of one node.

The controller starts it with a signal. Each phase is a function in `phases/` that returns the next phase;
`tenure/policy/lifecycle/transitions.py` lists the legal transitions.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from tenure.model.blockers import LAUNCH_FAILED
from tenure.model.disruption.commands import PermitRevoked
from tenure.model.disruption.drain import MAX_STATUS_LINE_LENGTH
from tenure.model.interruption.messages import InterruptionMessages
from tenure.model.launch import LaunchedInstance
from tenure.model.nodeclaim.history import NodeClaimExplanation
from tenure.model.nodeclaim.requests import InstanceStatus
from tenure.model.nodeclaim.state import NodeClaimOutcome, NodeClaimState, Phase
from tenure.model.observations import ObservedNodeClaim
from tenure.model.signals import GroupResult, LaunchError, PermitResult
from tenure.policy.interruption.decision import describe_event, draining_event
from tenure.policy.lifecycle.missing_nodes import missing_since
from tenure.policy.lifecycle.repair import record_conditions
from tenure.tracing import workflow_spans
from workflows import current_details
from workflows.approvals import EventApprovals
from workflows.current_details import IgnoresCancellation
from workflows.nodeclaim_context import ContinueAsNewRequested, NodeClaimContext
from workflows.outbox import FLUSH_TIMEOUT, Outbox, Report, has_pending_events, send_pending_event
from workflows.pausable import Pausable
from workflows.phases.drain import run_drain
from workflows.phases.failure import signal_replacement_status
from workflows.phases.initialization import run_initialization
from workflows.phases.interruption import (
    end_recovered_stops,
    has_new_event_records,
    has_unreported_events,
    record_interruption_messages,
    store_event_records,
    write_interruption_events,
)
from workflows.phases.launch import run_launch
from workflows.phases.pause import create_pause_controller, handle_permit_revoked
from workflows.phases.ready import run_ready
from workflows.phases.recovery import nodeclaim_exists
from workflows.phases.registration import run_registration
from workflows.phases.status_reports import (
    is_attention_unreported,
    is_drift_unreported,
    is_missing_node_unreported,
    is_not_ready_unreported,
    record_not_ready_interval,
    write_attention,
    write_drift,
    write_missing_node,
    write_not_ready_intervals,
)
from workflows.phases.termination import run_termination
from workflows.timers import stop_background_tasks, wait_at_most

PHASES: dict[Phase, Callable[[NodeClaimContext], Awaitable[Phase]]] = {
    Phase.LAUNCH: run_launch,
    Phase.REGISTRATION: run_registration,
    Phase.INITIALIZATION: run_initialization,
    Phase.READY: run_ready,
    Phase.DRAIN: run_drain,
    Phase.TERMINATION: run_termination,
}
REPORTS = (
    Report("AWS events in the memo", has_new_event_records, store_event_records),
    Report("AWS events", has_unreported_events, write_interruption_events),
    Report("events", has_pending_events, send_pending_event),
    Report("the verdict", is_attention_unreported, write_attention),
    Report("the missing Node", is_missing_node_unreported, write_missing_node),
    Report("NotReady intervals", is_not_ready_unreported, write_not_ready_intervals),
    Report("drift", is_drift_unreported, write_drift),
)


@workflow.defn(name="NodeClaim")
class NodeClaimWorkflow(Pausable, EventApprovals, IgnoresCancellation):
    how_to_stop = "delete its NodeClaim; to keep its node, pause its disruption"

    @workflow.init
    def __init__(self, state: NodeClaimState) -> None:
        self._nodeclaim_context = NodeClaimContext(state)
        self._pause_controller = create_pause_controller(self._nodeclaim_context)
        self._outbox = Outbox(self._nodeclaim_context, REPORTS)

    @workflow.run
    async def run(self, state: NodeClaimState) -> NodeClaimOutcome:
        context = self._nodeclaim_context
        context.start_run()
        background_loops = (
            self._outbox.run(),
            self._pause_controller.run(),
            self._confirm_deletions(),
            context.enforce_changed_deadline(),
        )
        background_tasks = [asyncio.create_task(loop) for loop in background_loops]
        try:
            while context.state.phase is not Phase.DELETED:
                try:
                    next_phase = await PHASES[context.state.phase](context)
                except ActivityError as error:
                    await context.handle_activity_error(error)
                else:
                    before, cause = context.state, _transition_cause(context.state, next_phase)
                    context.transition_to(next_phase, cause)
                    workflow_spans.record_transition(before, next_phase, cause)
                    await signal_replacement_status(context)
            await self._outbox.flush()
            await self._finish_activities()
        except ContinueAsNewRequested:
            await stop_background_tasks(background_tasks, self._is_writing)
            # Without an explicit memo, the new run gets the memo of the first run.
            workflow.continue_as_new(context.state, memo=workflow.memo())
        finally:
            for task in background_tasks:
                task.cancel()
        return _build_outcome(context.state)

    async def _finish_activities(self) -> None:
        """Wait up to FLUSH_TIMEOUT for activities of background tasks. A completed workflow ignores their results."""
        context = self._nodeclaim_context
        await wait_at_most(
            FLUSH_TIMEOUT,
            lambda: context.state.unconfirmed_deletion is None and not self._is_writing(),
            "the last activities",
        )

    def _is_writing(self) -> bool:
        return self._outbox.is_sending or self._pause_controller.is_writing

    @workflow.signal(description="From the watch: the current state of the NodeClaim and its Node")
    def observe(self, observed: ObservedNodeClaim) -> None:
        """Store what the watch saw, unless it is outdated. A live read confirms that a NodeClaim is gone."""
        if not self._is_newer(observed):
            return
        if observed.exists:
            self._store_observation(observed)
        else:
            self._nodeclaim_context.update_state(unconfirmed_deletion=observed)

    async def _confirm_deletions(self) -> None:
        """Until cancelled: read NodeClaims that the watch reports as gone. The next run repeats a read that has not
        ended, so that continue-as-new does not wait for it."""
        context = self._nodeclaim_context
        while True:
            await workflow.wait_condition(lambda: context.state.unconfirmed_deletion is not None)
            observed = context.state.unconfirmed_deletion
            if observed and not await nodeclaim_exists(context) and self._is_newer(observed):
                self._store_observation(observed)
            if context.state.unconfirmed_deletion is observed:
                context.update_state(unconfirmed_deletion=None)

    def _store_observation(self, observed: ObservedNodeClaim) -> None:
        previous = self._nodeclaim_context.state
        record_not_ready_interval(self._nodeclaim_context, observed)
        self._nodeclaim_context.update_state(
            observed=self._merge_with_known(observed),
            unready_since=self._unready_since(observed),
            is_newly_unready=self._is_newly_unready(observed),
            node_missing_since=missing_since(previous, observed, workflow.now()),
            instance_checks=0 if observed.node_ready else previous.instance_checks,
            instance_status=InstanceStatus() if observed.node_ready else previous.instance_status,
            health=record_conditions(
                previous, observed.unhealthy, observed.rules, workflow.now(), observed.repair_mode
            ),
            expected=previous.expected or observed.expected,
        )
        end_recovered_stops(self._nodeclaim_context)
        if self._nodeclaim_context.state.observed.rules != previous.observed.rules:
            self._nodeclaim_context.recompute_deadline()
        if observed.exists:
            self._pause_controller.observe_annotation(observed.pause)
        self._nodeclaim_context.set_current_details()

    def _merge_with_known(self, observed: ObservedNodeClaim) -> ObservedNodeClaim:
        """Keep what the observation cannot know: when a node became empty before the watch started, and the rules of a
        deleted NodeClaim."""
        before, observed = self._nodeclaim_context.state.observed, observed.model_copy(update={"expected": None})
        if not observed.exists:
            retained_fields = ("rules", "event_policies", "hook_policies", "events_unread")
            return observed.model_copy(update={name: getattr(before, name) for name in retained_fields})
        if observed.empty_since_unseen and before.empty and before.empty_since:
            return observed.model_copy(update={"empty_since": before.empty_since})
        return observed

    def _unready_since(self, observed: ObservedNodeClaim) -> datetime | None:
        return (
            None
            if observed.node_ready or not observed.node_name
            else self._nodeclaim_context.state.unready_since or workflow.now()
        )

    def _is_newly_unready(self, observed: ObservedNodeClaim) -> bool:
        state = self._nodeclaim_context.state
        is_unready = bool(observed.node_name) and not observed.node_ready
        return is_unready and (state.unready_since is None or state.is_newly_unready)

    def _is_newer(self, observed: ObservedNodeClaim) -> bool:
        return observed.number > self._nodeclaim_context.state.observed.number

    @workflow.signal(description="From the launch group: the instance, or why there is none")
    def launch_result(self, group_result: GroupResult) -> None:
        """Store the result of the launch group. A later result does not replace an instance or a final rejection."""
        state = self._nodeclaim_context.state
        if state.launched or (state.rejection and state.rejection.final):
            return
        if isinstance(group_result.result, LaunchedInstance):
            self._nodeclaim_context.update_state(launched=group_result.result)
        else:
            self._nodeclaim_context.update_state(rejection=group_result.result)

    @workflow.signal(description="From the launch group: the launch failed several times and is repeated")
    def launch_error(self, error: LaunchError) -> None:
        if self._nodeclaim_context.state.phase is Phase.LAUNCH and not self._nodeclaim_context.state.launched:
            self._nodeclaim_context.set_blocked_by(error.message[:MAX_STATUS_LINE_LENGTH], LAUNCH_FAILED)

    @workflow.signal(description="From its NodePool: a disruption permit, or what blocks it")
    def permit_decided(self, response: PermitResult) -> None:
        if self._nodeclaim_context.state.permit_requested_at:
            self._nodeclaim_context.update_state(permit=response)

    @workflow.signal(description="From its NodePool: the disruption permit is revoked")
    def permit_revoked(self, revocation: PermitRevoked) -> None:
        handle_permit_revoked(self._nodeclaim_context, revocation.why)

    @workflow.signal(description="From the Interruption workflow: AWS events of the instance")
    def interruption_events(self, messages: InterruptionMessages) -> None:
        """Idempotent; messages may arrive in any order."""
        record_interruption_messages(self._nodeclaim_context, messages)

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> NodeClaimState:
        return self._nodeclaim_context.state

    @workflow.query(description="Why the node is in its phase, and its history")
    def explain(self) -> NodeClaimExplanation:
        return current_details.explain_nodeclaim(self._nodeclaim_context.state)


def _transition_cause(state: NodeClaimState, phase: Phase) -> str:
    """The cause of a transition, as `tenure why` lists it."""
    launched = state.launched
    if state.phase is Phase.LAUNCH and phase in (Phase.INITIALIZATION, Phase.READY):
        return f"{state.node_name} already existed"
    match phase:
        case Phase.REGISTRATION if launched:
            return f"{launched.instance_type} {launched.capacity_type} in {launched.zone}"
        case Phase.READY | Phase.INITIALIZATION if state.phase is Phase.DRAIN:
            return "the drain was cancelled"
        case Phase.INITIALIZATION:
            if not state.initialized:
                return f"{state.node_name} joined"
            is_rebooted = state.observed.boot_id != state.boot_id
            return f"{state.node_name} {'rebooted' if is_rebooted else 'registered again'}"
        case Phase.READY:
            return "initialized"
        case Phase.DRAIN | Phase.TERMINATION:
            event = draining_event(state)
            return f"{state.disruption}: {describe_event(event)}" if event else state.disruption
        case _:
            return "instance gone"


def _build_outcome(state: NodeClaimState) -> NodeClaimOutcome:
    launched = state.launched
    return NodeClaimOutcome(
        name=state.identity.name,
        uid=state.identity.uid,
        reason=state.disruption,
        provider_id=launched.provider_id if launched else "",
        instance_type=launched.instance_type if launched else "",
        history=state.history,
        why=state.identity.why,
        events=current_details.describe_interruption_events(state),
        drift=current_details.format_drift(state),
        evicted_pods=state.evicted_pods,
    )
