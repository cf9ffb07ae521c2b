"""Replicas of a static NodePool: when the NodePool workflow creates or deletes NodeClaims, and when it waits.

The watch reports the numbers of existing and terminating NodeClaims. The workflow is idle while they match
spec.replicas. A failed step is retried after a change or a pause.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodepool.static_capacity import ReplicaActivities
from tenure.model.extra_capacity import ReplicasRequest, ReplicasResult
from tenure.model.observations import ObservedNodePool
from tenure.model.workflow_states import NodePoolState
from tenure.policy.static_capacity import RECENT, pause_after
from workflows.activity_options import REPLICAS, with_summary

RETRY_AFTER_FAULT = timedelta(minutes=1)
NEXT_STEP_AFTER = timedelta(seconds=1)
"""Delay if one step cannot create or delete all NodeClaims."""
CONFIRM_AFTER = timedelta(seconds=30)
"""The watch reports the step's NodeClaims by then. Otherwise they are already gone, and the watch missed them."""


class ReplicaController:
    """`state` and `update_state` are of the NodePool. `blocked_by`: why and how long no node may be deleted."""

    def __init__(
        self,
        state: Callable[[], NodePoolState],
        update_state: Callable[..., None],
        blocked_by: Callable[[], tuple[str, datetime | None]],
    ) -> None:
        self._state, self._update_state, self._blocked_by = state, update_state, blocked_by
        self._last_observed: ObservedNodePool | None = None
        self._next_at: datetime | None = None

    def is_due(self) -> bool:
        at = self.next_at()
        return at is not None and at <= workflow.now()

    def next_at(self) -> datetime | None:
        """When the next step is due; None until a change."""
        state, now = self._state(), workflow.now()
        observed = state.observed
        if observed.static != "on" or observed.deleting or not observed.exists:
            return None
        has_open_plan = bool(state.replicas.plan_id)
        if not has_open_plan and observed.existing == observed.replicas:
            return None
        if self._last_observed is None or _has_changed(observed, self._last_observed):
            at = now
        elif self._next_at is not None:
            at = self._next_at
        else:
            return None
        return max(at, self._blocked_until() or now)

    def _blocked_until(self) -> datetime | None:
        """The end of an operator's pause, or of the backoff after NodeClaims that did not last."""
        state = self._state()
        if state.observed.existing > state.observed.replicas:
            return self._blocked_by()[1]
        replicas = state.replicas
        if replicas.plan_id or replicas.made_at is None or replicas.made_for != _template_key(state.observed):
            return None
        return replicas.made_at + pause_after(replicas.in_a_row)

    async def run_step(self, blocked_by: str) -> None:
        """`blocked_by`: why no node may be deleted now; empty if deletions are allowed."""
        before = self._state().replicas
        plan_id = before.plan_id or workflow.uuid4().hex[:12]
        observed = self._last_observed = self._state().observed
        self._next_at = None
        self._update_state(replicas=before.model_copy(update={"plan_id": plan_id}))
        try:
            result = await workflow.execute_activity_method(
                ReplicaActivities.reconcile_replicas,
                ReplicasRequest(pool=self._state().name, plan_id=plan_id, deletion_blocked_by=blocked_by),
                **with_summary(REPLICAS, f"{observed.existing} nodes, {observed.replicas} desired"),
            )
        except ActivityError as error:
            self._next_at = workflow.now() + RETRY_AFTER_FAULT
            self._update_replicas(waits_for=f"retried soon: {error.cause or error}"[:300])
            return
        # A change during the step may have been undone since.
        was_observed = self._state().observed.number != observed.number
        if result.more or not result.waits_for or was_observed:
            self._next_at = workflow.now() + (NEXT_STEP_AFTER if result.more else CONFIRM_AFTER)
        self._record_result(result, _template_key(observed), plan_id if result.more else "", begun=not before.plan_id)

    def _record_result(self, result: ReplicasResult, made_for: str, plan_id: str, *, begun: bool) -> None:
        self._update_replicas(plan_id=plan_id, waits_for=result.waits_for)
        if not result.created:
            return
        previous, now = self._state().replicas, workflow.now()
        is_repeated = previous.made_at is not None and now - previous.made_at < RECENT and previous.made_for == made_for
        in_a_row = (previous.in_a_row if is_repeated else 0) + int(begun or not is_repeated)
        self._update_replicas(made_at=now, made_for=made_for, in_a_row=in_a_row)

    def _update_replicas(self, **fields: object) -> None:
        self._update_state(replicas=self._state().replicas.model_copy(update=fields))

    def waits_for(self, paused: str) -> str:
        """Why the number of nodes differs from spec.replicas, for the details; empty if it matches."""
        state, now = self._state(), workflow.now()
        observed = state.observed
        if observed.static == "off":
            return "the feature gate StaticCapacity, which is off"
        if observed.static != "on" or (observed.existing == observed.replicas and not state.replicas.plan_id):
            return ""
        if observed.existing > observed.replicas and paused:
            return paused
        blocked_until = self._blocked_until()
        if blocked_until is not None and blocked_until > now and observed.existing < observed.replicas:
            until = blocked_until.isoformat(timespec="seconds")
            return f"{until}: the last NodeClaims failed, {state.replicas.in_a_row} times in a row"
        return state.replicas.waits_for


def _template_key(observed: ObservedNodePool) -> str:
    """The backoff restarts after a change of the NodePool or the readiness of its EC2NodeClass."""
    return f"{observed.generation} {observed.node_class_ready}"


def _has_changed(observed: ObservedNodePool, previous: ObservedNodePool) -> bool:
    """Whether a field that a step uses has changed."""
    ignored = {"number", "usage", "stamps", "freed"}
    return observed.model_dump(exclude=ignored) != previous.model_dump(exclude=ignored)
