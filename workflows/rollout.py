"""Rollout of drift in a NodePool: when it is evaluated, and how many drifted nodes may be disrupted.

`tenure/policy/rollout/decision.py` decides, from the observation of `activities/nodepool/rollout.py`. Without rollout
rules or drifted nodes there is no evaluation. `disruption/permits.py` calls `limit_allowed_disruptions` before it
grants permits for Drifted.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodeclass import NodeClassActivities
from activities.nodepool.rollout import RolloutActivities
from tenure.model.rollout import (
    ApproveRollout,
    GateResult,
    HealthGate,
    ObservedRollout,
    PinRequest,
    RejectRollout,
    RollBack,
    RolloutDecision,
    RolloutEvent,
    RolloutNotification,
    RolloutRequest,
    RolloutState,
)
from tenure.model.signals import OperatorRequestResult
from tenure.model.workflow_states import NodePoolState
from tenure.policy.disruption.budgets import AllowedDisruptions
from tenure.policy.rollout.decision import evaluate_rollout
from tenure.policy.rollout.plan import approve, record_gate_results, record_grants, reject, rejection_reason
from workflows import metrics, search_attributes, visibility
from workflows.activity_options import GATE, OBSERVE, RESOLVE, with_summary

PINNED_FOR: Final = timedelta(days=30)
"""After this time, a failed image is rolled out again, starting with the first wave."""
REUSE_DECISION_FOR: Final = timedelta(minutes=1)
"""How long a decision without headroom is reused for further permit requests."""
RETRY_AFTER_FAULT: Final = timedelta(minutes=1)
MAX_PENDING_EVENTS: Final = 20
HEALTH: Final = "the health of the rollout"


class RolloutController:
    """`state` and `update_state` are of the NodePool. `on_opened` is called when requests for Drifted may be
    granted."""

    def __init__(
        self, state: Callable[[], NodePoolState], update_state: Callable[..., None], *, on_opened: Callable[[], None]
    ) -> None:
        self._state, self._update_state, self._on_opened = state, update_state, on_opened
        self._last_decision: RolloutDecision | None = None
        self._decided_at: datetime | None = None
        self._next_at: datetime | None = None
        self._end_retry_at: datetime | None = None
        """When to try again to remove the annotation of an ended rollout."""
        self._decided_inputs: tuple[object, ...] = ()
        self._must_evaluate = True
        self._was_requested = False

    # --- requests ---

    def validate(self, request: ApproveRollout | RejectRollout) -> None:
        """Raises ValueError with the reason if the request is invalid."""
        if rejection := rejection_reason(self._state().rollout, request, workflow.now()):
            raise ValueError(rejection)

    def approve(self, request: ApproveRollout) -> OperatorRequestResult:
        if rejection := rejection_reason(self._state().rollout, request, workflow.now()):
            return self._reject_request(request, rejection)
        self._update_rollout(approve(self._state().rollout, request, workflow.now()))
        plan = self._state().rollout.plan
        needs_more_approvals = plan is not None and plan.id == request.plan and not plan.is_approved
        message = f"plan {request.plan} is approved by {request.by}" + (
            ", and waits for others" if needs_more_approvals else ""
        )
        return self._record_event(RolloutEvent(reason="RolloutApproved", message=_with_reason(message, request.reason)))

    def reject(self, request: RejectRollout) -> OperatorRequestResult:
        if rejection := rejection_reason(self._state().rollout, request, workflow.now()):
            return self._reject_request(request, rejection)
        self._update_rollout(reject(self._state().rollout, request, workflow.now()))
        roll_back_text = ", and the last good image is restored" if request.roll_back else ""
        message = _with_reason(f"plan {request.plan} is rejected by {request.by}{roll_back_text}", request.reason)
        return self._record_event(RolloutEvent(reason="RolloutRejected", message=message))

    def record_granted(self, uids: Iterable[str]) -> None:
        """Record NodeClaims that got permits for Drifted."""
        self._update_rollout(record_grants(self._state().rollout, tuple(uids), workflow.now()))

    def _record_event(self, event: RolloutEvent) -> OperatorRequestResult:
        self._add_events(event)
        self._must_evaluate = True
        return OperatorRequestResult(message=event.message)

    def _reject_request(self, request: ApproveRollout | RejectRollout, why: str) -> OperatorRequestResult:
        """The rejection is also published as an event, since a signal has no result."""
        self._record_event(RolloutEvent(reason="RolloutRefused", message=f"{request.by or 'unknown'}: {why}"))
        return OperatorRequestResult(accepted=False, message=why)

    # --- due times ---

    def is_due(self) -> bool:
        at = self.next_at()
        return at is not None and at <= workflow.now()

    def next_at(self) -> datetime | None:
        """When the next evaluation is due; None until a change."""
        state = self._state()
        if not state.observed.exists:
            return None
        if state.observed.rollout is None:
            # Invalid rules still exist, so the state of the rollout is kept until they are valid.
            has_ended = state.rollout != RolloutState() and not state.observed.unread.rollout
            return (self._end_retry_at or workflow.now()) if has_ended else None
        return (
            workflow.now() if self._must_evaluate or self._decided_inputs != self._decision_inputs() else self._next_at
        )

    def _decision_inputs(self) -> tuple[object, ...]:
        """Inputs whose change requires an evaluation. Without an active rollout, nodes are not included."""
        state = self._state()
        observed, rollout = state.observed, state.rollout
        fixed = (
            observed.rollout,
            observed.generation,
            observed.node_class,
            observed.node_class_ready,
            observed.class_generation,
        )
        return (fixed,) if rollout.finished else (fixed, observed.usage, state.registrations.outcomes)

    # --- processing ---

    async def run_step(self) -> None:
        """Evaluate, and call `on_opened` if the headroom has increased."""
        previous_headroom = self._last_decision.headroom if self._last_decision else 0
        if self._state().observed.rollout is None:
            await self._end_rollout()
            return
        has_pending_requests = any(one.reason == "Drifted" for one in self._state().pending_requests)
        decision = await self._evaluate(is_requested=self._was_requested and has_pending_requests)
        if (
            has_pending_requests
            and previous_headroom is not None
            and (decision.headroom is None or decision.headroom > previous_headroom)
        ):
            self._on_opened()

    async def limit_allowed_disruptions(
        self, allowed_disruptions: AllowedDisruptions, *, blocked_by: str = ""
    ) -> AllowedDisruptions:
        """Limit the allowed disruptions for Drifted by the current wave. `blocked_by`: the cause if no permit is
        granted.

        The caller subtracts unused permits, as for budgets.
        """
        state = self._state()
        if state.observed.rollout is None:
            return allowed_disruptions
        decision = await self._decide_headroom(is_requested=allowed_disruptions.allowed > 0 and not blocked_by)
        if decision.headroom is None:
            return allowed_disruptions
        unused = {*allowed_disruptions.count.existing} - {*allowed_disruptions.count.consuming}
        now = workflow.now()
        remaining = decision.headroom + sum(
            one.counts_until > now and one.claim_uid in unused for one in self._state().permits
        )
        if remaining >= allowed_disruptions.allowed:
            return allowed_disruptions
        return allowed_disruptions.model_copy(
            update={"allowed": remaining, "allowed_unavailable": None, "why": decision.why}
        )

    @property
    def status_text(self) -> str:
        """Progress or blocker of the rollout; empty without one."""
        return self._last_decision.why if self._last_decision and self._state().observed.rollout else ""

    @property
    def is_overdue(self) -> bool:
        return bool(self._last_decision and self._last_decision.overdue)

    async def _decide_headroom(self, *, is_requested: bool) -> RolloutDecision:
        """Reuse a recent decision without headroom; otherwise evaluate."""
        last_decision, now = self._last_decision, workflow.now()
        is_recent = (
            last_decision is not None and self._decided_at is not None and now - self._decided_at < REUSE_DECISION_FOR
        )
        if (
            is_recent
            and last_decision is not None
            and last_decision.headroom == 0
            and not self.is_due()
            and is_requested <= self._was_requested
        ):
            return last_decision
        self._was_requested = is_requested
        return await self._evaluate(is_requested=is_requested)

    async def _evaluate(self, *, is_requested: bool) -> RolloutDecision:
        self._must_evaluate, self._decided_inputs = False, self._decision_inputs()
        try:
            observed = await self._observe(is_requested)
        except ActivityError as error:
            why = f"the rollout could not be evaluated: {error.cause or error}"[:300]
            decision = RolloutDecision(
                state=self._state().rollout, headroom=0, why=why, next_check_at=workflow.now() + RETRY_AFTER_FAULT
            )
            return self._store_decision(decision)
        # A NodePool that changes during the observation, and changes back, must be observed again.
        self._must_evaluate = self._must_evaluate or self._decided_inputs != self._decision_inputs()
        decision = self._decide_step(observed)
        if decision.gates_to_query:
            gate_results = await asyncio.gather(*(self._query_gate(gate) for gate in decision.gates_to_query))
            self._update_rollout(record_gate_results(self._state().rollout, tuple(gate_results)))
            decision = self._decide_step(observed)
        await self._publish_status(observed.stored_state)
        if decision.roll_back is not None:
            await self._roll_back(decision.roll_back)
        return self._store_decision(decision)

    async def _observe(self, is_requested: bool) -> ObservedRollout:
        """The live state, completed with the workflow's own state."""
        rules = self._state().observed.rollout
        pods = bool(rules and rules.health and rules.health.pods_ready)
        observed: ObservedRollout = await workflow.execute_activity_method(
            RolloutActivities.observe_rollout,
            RolloutRequest(name=self._state().name, pods=pods),
            **with_summary(OBSERVE, "observe the rollout"),
        )
        state, now = self._state(), workflow.now()
        permits = {one.claim_uid for one in state.permits if one.counts_until > now and one.reason == "Drifted"}
        since = state.rollout.counted_from
        failed = [one for one in state.registrations.outcomes if not one.registered and since and one.at >= since]
        workflow_fields = {"rules": state.observed.rollout, "is_requested": is_requested, "failed_starts": len(failed)}
        return observed.model_copy(
            update={**workflow_fields, "departing": tuple(sorted({*observed.departing, *permits}))}
        )

    def _decide_step(self, observed: ObservedRollout) -> RolloutDecision:
        decision = evaluate_rollout(self._state().name, self._state().rollout, observed, workflow.now())
        self._update_rollout(decision.state)
        self._add_events(*decision.events)
        for one in decision.events:
            metrics.count_rollout(self._state().name, one.reason)
        return decision

    async def _query_gate(self, gate: HealthGate) -> GateResult:
        """A failed query is the result `unknown`, which blocks the rollout."""
        try:
            result: GateResult = await workflow.execute_activity_method(
                RolloutActivities.query_health_gate, gate, **with_summary(GATE, f"query {gate.name}"[:100])
            )
        except ActivityError as error:
            result = GateResult(outcome="unknown", why=f"the query failed: {error.cause or error}"[:200])
        return result.model_copy(update={"gate": gate.id, "at": workflow.now()})

    async def _publish_status(self, annotation: str) -> None:
        """Publish events and the annotation. After a failure, the next evaluation publishes them again."""
        serialized_state, events = _serialize_state(self._state().rollout), self._state().rollout_events
        if serialized_state == annotation and not events:
            return
        try:
            request = RolloutNotification(name=self._state().name, events=events, stored_state=serialized_state)
            await workflow.execute_activity_method(
                RolloutActivities.publish_rollout_status, request, **with_summary(OBSERVE, "publish the rollout status")
            )
            self._update_state(rollout_events=tuple(one for one in self._state().rollout_events if one not in events))
        except ActivityError:
            return

    async def _roll_back(self, target: RollBack) -> None:
        """Pin the last good image. After a failure, the next evaluation tries again."""
        halted = self._state().rollout.halted
        by = (halted and halted.by) or HEALTH
        request = PinRequest(
            node_class=target.node_class, images=target.images, by=by, why=target.why, lasts=PINNED_FOR
        )
        try:
            await workflow.execute_activity_method(
                NodeClassActivities.pin_amis,
                request,
                **with_summary(RESOLVE, f"roll back to {' '.join(target.images.values())}"),
            )
        except ActivityError:
            return

    async def _end_rollout(self) -> None:
        """Reset the state after the removal of the rollout rules. Keep it until the annotation is removed, from which
        new rules would restore it."""
        ended, self._end_retry_at = self._state().rollout, None
        self._update_rollout(RolloutState())
        self._store_decision(RolloutDecision(state=RolloutState()))
        self._update_state(rollout_events=())
        self._must_evaluate = True
        request = RolloutNotification(name=self._state().name)
        try:
            await workflow.execute_activity_method(
                RolloutActivities.publish_rollout_status, request, **with_summary(OBSERVE, "the rollout is over")
            )
        except ActivityError:
            self._update_rollout(ended)
            self._end_retry_at = workflow.now() + RETRY_AFTER_FAULT
        self._on_opened()

    def _store_decision(self, decision: RolloutDecision) -> RolloutDecision:
        self._last_decision, self._decided_at, self._next_at = decision, workflow.now(), decision.next_check_at
        self._publish_attributes()
        if decision.state.finished:
            self._decided_inputs = self._decided_inputs[:1]
        return decision

    def _publish_attributes(self) -> None:
        """A rollout that waits for an operator has the same search attributes as an overdue node."""
        self._update_state(rollout_blocked_by=self.status_text if self.is_overdue else "")
        attributes = workflow.info().typed_search_attributes
        current = (bool(attributes.get(search_attributes.OVERDUE)), attributes.get(search_attributes.BLOCKED_BY))
        desired = visibility.rollout_attributes(self.is_overdue, self._state().rollout)
        if current != tuple(one.value for one in desired) and (self.is_overdue or current[0]):
            workflow.upsert_search_attributes(desired)

    def _add_events(self, *events: RolloutEvent) -> None:
        self._update_state(rollout_events=(*self._state().rollout_events, *events)[-MAX_PENDING_EVENTS:])

    def _update_rollout(self, rollout: RolloutState) -> None:
        if rollout != self._state().rollout:
            self._update_state(rollout=rollout)


def _serialize_state(state: RolloutState) -> str:
    """The state for the annotation, from which a lost workflow recovers, without fields that an evaluation computes."""
    recoverable = state.model_copy(update={"moving": (), "gate_results": (), "failing_since": None})
    return recoverable.model_dump_json(exclude_defaults=True) if recoverable != RolloutState() else ""


def _with_reason(message: str, reason: str) -> str:
    return f"{message}: {reason}" if reason else message
