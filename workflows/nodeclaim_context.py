"""The context of a NodeClaim workflow run: its state, and operations that all phases use.

Signal handlers only replace `state`; phases act on it.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from logging import INFO, WARNING
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import ActivityError, RetryState, is_cancelled_exception

from tenure.model.base import Message
from tenure.model.blockers import CALL_FAILED, NODE_NOT_JOINED
from tenure.model.nodeclaim.requests import MAX_EVICTED_PODS, NodeClaimRef, ReportRequest
from tenure.model.nodeclaim.state import NodeClaimState, Phase, Step
from tenure.policy.interruption.decision import requires_action
from tenure.policy.lifecycle.deadlines import action_of, slow_at
from tenure.policy.lifecycle.transitions import deadline_of, may_follow
from tenure.policy.lifecycle.verdict import is_alarmed, verdict_of
from workflows import current_details, ids, metrics, visibility
from workflows.activity_options import is_continue_as_new_due, try_signal
from workflows.current_details import publish_details
from workflows.phases.node_log import blocker_line, step_line
from workflows.search_attributes import BLOCKED_BY, OVERDUE
from workflows.timers import time_until, wait_at_most

T = TypeVar("T")
RETRY_AFTER = timedelta(seconds=20)
"""Before a phase restarts after an activity failed for good."""
MAX_PENDING_EVENTS = 20
NOT_JOINED = f"{NODE_NOT_JOINED}: no Node has its provider ID"


class ContinueAsNewRequested(Exception):
    """Raised from `wait`: the run continues as new with its current state."""


class NodeClaimContext:
    def __init__(self, state: NodeClaimState) -> None:
        self.state = state
        self.deadline_changed = False
        self.is_executing_activity = False
        self._published_attributes: dict[str, SearchAttributeUpdate[Any]] = {}
        self._logged_attention = ""

    @property
    def now(self) -> datetime:
        return workflow.now()

    @property
    def name(self) -> str:
        return self.state.identity.name

    @property
    def uid(self) -> str:
        return self.state.identity.uid

    @property
    def nodeclaim_ref(self) -> NodeClaimRef:
        launched = self.state.launched
        return NodeClaimRef(
            name=self.name,
            uid=self.uid,
            node_name=self.state.node_name,
            provider_id=launched.provider_id if launched else "",
            initialized=self.state.initialized,
        )

    @property
    def is_deleting(self) -> bool:
        return self.state.observed.deleting or not self.state.observed.exists

    def update_state(self, **fields: Any) -> None:
        self.state = self.state.model_copy(update=fields)

    def record_evicted_pods(self, pods: Iterable[str]) -> None:
        """`pods`: `namespace/name`."""
        self.update_state(evicted_pods=tuple(dict.fromkeys((*self.state.evicted_pods, *pods)))[:MAX_EVICTED_PODS])

    def publish_event(
        self, reason: str, message: str, *, condition: str = "", status: str = "Unknown", on_node: bool = False
    ) -> None:
        """Queue an event for the NodeClaim (`on_node`: for its Node too), and a condition with the same message.

        The outbox sends them in this order. It keeps the latest MAX_PENDING_EVENTS that it could not send.
        """
        request = ReportRequest(
            claim=self.nodeclaim_ref, condition=condition, status=status, message=message, event=reason, on_node=on_node
        )
        self.update_state(pending_events=(*self.state.pending_events, request)[-MAX_PENDING_EVENTS:])

    def start_run(self) -> None:
        """Restore the search attributes and details of a continued run; a new workflow enters launch."""
        if self.state.since is None:
            self.transition_to(Phase.LAUNCH, "created")
            return
        self._published_attributes = visibility.nodeclaim_attributes(self.state)
        self.set_current_details()

    def transition_to(self, phase: Phase, cause: str) -> None:
        """Enter a phase: set its deadline, record it in the history, and publish it.

        The start request already has the search attributes of launch; a deleted NodeClaim's workflow closes.
        """
        before = self.state.phase
        if self.state.since is not None and not may_follow(before, phase):
            raise AssertionError(f"{before} may not be followed by {phase}")
        metrics.time_startup(self.state, phase)
        if metrics.count_disrupted(self.state, phase):
            self.update_state(disruption_counted=True)
        if phase is Phase.DELETED:
            metrics.count_terminated(self.state)
            metrics.time_end(self.state)
        now = self.now
        message, fields = step_line(self.state, phase, cause, now)
        workflow.logger.info(message, extra=fields)
        self.update_state(
            phase=phase,
            since=now,
            deadline=deadline_of(self.state, phase, now),
            overdue=False,
            slow=False,
            blocked_by="",
            waits_until=None,
            history=(*self.state.history, Step(phase=phase, at=now, cause=cause)),
        )
        if phase in (Phase.LAUNCH, Phase.DELETED):
            # A launch result may arrive before the first phase; the start request did not have its attributes.
            known = self.state.model_copy(update={"launched": None})
            self._published_attributes = visibility.nodeclaim_attributes(known)
            self.set_current_details()
        else:
            self.publish_status()

    def publish_status(self) -> None:
        """Upsert the search attributes that changed, in one batch, and set the details for the Temporal UI."""
        before = self._published_attributes
        self._published_attributes = visibility.nodeclaim_attributes(self.state)
        changed = {
            name: update
            for name, update in self._published_attributes.items()
            if name not in before or before[name].value != update.value
        }
        if changed:
            workflow.upsert_search_attributes(list(changed.values()))
        self._log_blocker(is_new=not {BLOCKED_BY.name, OVERDUE.name}.isdisjoint(changed))
        self.set_current_details()

    def _log_blocker(self, *, is_new: bool) -> None:
        """One line per code, and per sentence of a verdict that needs attention."""
        verdict = verdict_of(self.state)
        attention = verdict.sentence if verdict and not verdict.clears_by_itself else ""
        if verdict and (is_new or attention not in ("", self._logged_attention)):
            message, fields = blocker_line(self.state, verdict, self.now)
            workflow.logger.log(WARNING if attention else INFO, message, extra=fields)
        self._logged_attention = attention

    def set_blocked_by(self, why: str, code: str = "") -> None:
        """Publish what the node waits for: `why` in the details, `code` as TenureBlockedBy.

        `tenure/model/blockers.py` lists the codes. Without a code, `why` begins with it: `NodeNotReady: ...`."""
        if why != self.state.blocked_by or (code and code != self.state.blocked_code):
            self.update_state(blocked_by=why, blocked_code=code or why.partition(":")[0])
            self.publish_status()

    def is_past_deadline(self) -> bool:
        deadline = self.state.deadline
        return deadline is not None and self.now >= deadline

    def mark_overdue(self) -> None:
        """Publish TenureOverdue and count it in the worker's metrics, once per phase."""
        if not self.state.overdue:
            self.update_state(overdue=True)
            self.publish_status()
            metrics.count_overdue(self.state)

    def stays_overdue_by_policy(self) -> bool:
        """Mark the node overdue if its LifecyclePolicy only raises an alarm at the deadline; False otherwise."""
        if action_of(self.state.observed.rules, self.state.phase) != "alarm":
            return False
        self.mark_overdue()
        return True

    def is_alarmed(self) -> bool:
        """The node is overdue and stays until a person acts."""
        return is_alarmed(self.state)

    def recompute_deadline(self) -> None:
        """Apply a changed LifecyclePolicy: the deadline counts from the start of the phase."""
        state = self.state
        if state.since is None:
            return
        deadline = deadline_of(state, state.phase, state.since)
        if deadline != state.deadline:
            overdue = state.overdue and deadline is not None and self.now >= deadline
            self.update_state(deadline=deadline, overdue=overdue)
            self.deadline_changed = True
        self.publish_status()

    async def enforce_changed_deadline(self) -> None:
        """Until cancelled: mark the node overdue at a deadline that a LifecyclePolicy moves while an activity runs.

        `execute_until_done` bounds the activity by the earlier deadline only; waits notice a change themselves.
        """
        while True:
            await workflow.wait_condition(lambda: self.is_executing_activity and self.deadline_changed)
            self.deadline_changed = False
            if self.state.deadline is not None and not self.state.overdue:
                await self._wait_for_changed_deadline(self.state.deadline - self.now)
                if self.is_executing_activity and self.is_past_deadline():
                    self.mark_overdue()

    async def _wait_for_changed_deadline(self, remaining: timedelta) -> None:
        if remaining > timedelta(0):
            await wait_at_most(
                remaining,
                lambda: self.deadline_changed or not self.is_executing_activity or self.state.overdue,
                "the changed deadline",
            )

    def watch_deadline(self) -> Callable[[], bool]:
        """Whether the deadline, or the time from which the phase is slow, has changed since this call."""

        def deadlines() -> tuple[datetime | None, bool, datetime | None]:
            return self.state.deadline, self.is_alarmed(), slow_at(self.state)

        known = deadlines()
        return lambda: deadlines() != known

    def next_slow_or_overdue_at(self) -> datetime | None:
        """When the phase becomes slow or overdue without any event; None if neither can happen."""
        candidates = (slow_at(self.state), None if self.is_alarmed() else self.state.deadline)
        return min((at for at in candidates if at), default=None)

    def mark_slow_if_due(self) -> bool:
        """Publish, once per phase, that it takes longer than expected. False if it does not."""
        at = slow_at(self.state)
        if at is None or self.now < at:
            return False
        self.update_state(slow=True)
        if self.state.phase is Phase.REGISTRATION and not self.state.blocked_by:
            self.set_blocked_by(NOT_JOINED)
        else:
            self.publish_status()
        return True

    async def execute_until_done(self, call: Callable[[Any], Awaitable[T]], options: Any) -> T:
        """Run an activity without a time limit. At the phase's deadline the node becomes overdue and the activity is
        retried.

        Costs no timer. Raises ActivityError for a fault that is not retryable.
        """
        self.is_executing_activity, self.deadline_changed = True, False
        try:
            return await self._execute_until_done(call, options)
        finally:
            self.is_executing_activity = False

    async def _execute_until_done(self, call: Callable[[Any], Awaitable[T]], options: Any) -> T:
        applied_deadline = None
        while self.state.deadline not in (None, applied_deadline) and not self.is_past_deadline():
            applied_deadline = self.state.deadline
            try:
                return await call(self.bound_by_deadline(options))
            except ActivityError as error:
                if error.retry_state is not RetryState.TIMEOUT:
                    raise
                if not self.state.blocked_by:
                    self.update_state(blocked_by=str(error.cause or error)[:200], blocked_code=CALL_FAILED)
        if self.state.deadline is not None:
            self.mark_overdue()
            self.publish_status()
        return await call(options)

    async def handle_activity_error(self, error: ActivityError) -> None:
        """Publish a fault that is not retryable, and wait before the phase restarts. It never ends the workflow."""
        if is_cancelled_exception(error):
            raise error
        self.set_blocked_by(str(error.cause or error)[:200], CALL_FAILED)
        if self.is_past_deadline():
            self.mark_overdue()
        known = self._requires_decision()
        await self.wait(
            lambda: not known and self._requires_decision(),
            until=self.now + RETRY_AFTER,
            summary="before trying again",
        )

    def _requires_decision(self) -> bool:
        """Whether the NodeClaim is being deleted, or an AWS event requires an action."""
        return self.is_deleting or requires_action(self.state, self.now)

    def bound_by_deadline(self, options: Any) -> Any:
        """`options` without retries past the phase's deadline."""
        deadline = self.state.deadline
        return {**options, "schedule_to_close_timeout": deadline - self.now} if deadline else options

    async def wait(self, happened: Callable[[], bool], *, until: datetime | None, summary: str) -> bool:
        """Wait for a condition, at most until `until`; False at a timeout. Raises ContinueAsNewRequested.

        Without `until` there is no timer, so an idle node costs no history event.
        """
        if happened():
            return True
        if until is not None and until <= self.now:
            return False
        timeout = time_until(until) if until is not None else None
        self.continue_as_new_if_suggested()
        try:
            await workflow.wait_condition(
                lambda: happened() or is_continue_as_new_due(),
                timeout=timeout,
                timeout_summary=summary if timeout else None,
            )
        except TimeoutError:
            return False
        if not happened():
            raise ContinueAsNewRequested
        return True

    async def wait_until_deadline(
        self, happened: Callable[[], bool], *, sooner: datetime | None = None, summary: str
    ) -> bool:
        """`wait` until the phase's deadline or `sooner`. The deadline may move meanwhile. Marks a phase that takes long
        as slow. A node that waits for a person has no deadline."""
        while True:
            until = min((at for at in (sooner, self.next_slow_or_overdue_at()) if at), default=None)
            deadline_changed = self.watch_deadline()
            if await self.wait(lambda: happened() or deadline_changed(), until=until, summary=summary):  # noqa: B023
                if happened():
                    return True
            elif (sooner and self.now >= sooner) or not self.mark_slow_if_due():
                return False

    async def wait_or_alarm(self, happened: Callable[[], bool], *, summary: str) -> bool:
        """`wait_until_deadline`, and beyond the deadline if its LifecyclePolicy only raises an alarm."""
        while not await self.wait_until_deadline(happened, summary=summary):
            if not self.stays_overdue_by_policy():
                return False
        return True

    def continue_as_new_if_suggested(self) -> None:
        """For a phase that may loop without calling `wait`. Raises ContinueAsNewRequested."""
        if is_continue_as_new_due():
            raise ContinueAsNewRequested

    async def signal_nodepool(self, signal: str, message: Message) -> bool:
        """Signal the workflow of its NodePool. False if it is not running."""
        return await try_signal(ids.nodepool(self.state.identity.cluster, self.state.identity.pool), signal, message)

    def set_current_details(self) -> None:
        publish_details(current_details.render_nodeclaim(self.state))
