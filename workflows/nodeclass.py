"""The NodeClass workflow resolves an EC2NodeClass, refreshes it, and finalizes it when no NodeClaim uses it."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodeclass import NodeClassActivities
from tenure.model.nodeclaim.requests import NodeClassRequest, NodeClassResult
from tenure.model.observations import ObservedNodeClass
from tenure.model.workflow_states import NodeClassState
from workflows import current_details
from workflows.activity_options import RESOLVE, is_continue_as_new_due, with_summary
from workflows.current_details import IgnoresCancellation, publish_details

REFRESH_INTERVAL = timedelta(minutes=5)
"""While the EC2NodeClass is ready (reference 7.1)."""
RETRY_AFTER = timedelta(minutes=1)
"""While it is not ready or AWS lookups fail."""
FIRST_RETRY_AFTER = timedelta(seconds=5)
"""After the first failure; doubled after each further one, up to RETRY_AFTER."""
MAX_EARLY_RETRIES = 6
"""Failures up to which the `retry_after` of the result applies."""
BLOCKED_RECHECK_INTERVAL = timedelta(minutes=10)
"""While NodeClaims block the deletion. A change of their number wakes the workflow earlier."""


@workflow.defn(name="EC2NodeClass")
class NodeClassWorkflow(IgnoresCancellation):
    how_to_stop = "delete its EC2NodeClass"

    @workflow.init
    def __init__(self, state: NodeClassState) -> None:
        self._state = state
        self._is_blocked = False
        self._has_relevant_change = False

    @workflow.run
    async def run(self, state: NodeClassState) -> None:
        while self._state.observed.exists:
            self._has_relevant_change = False
            deleting = self._state.observed.deleting
            if deleting:
                if await self._finalize():
                    return
            else:
                await self._resolve()
            self._set_current_details()
            await self._wait_for_change(deleting)
            if is_continue_as_new_due():
                workflow.continue_as_new(self._state)

    @workflow.signal(description="From the watch: the current state of the EC2NodeClass")
    def observe(self, observed: ObservedNodeClass) -> None:
        if observed.number > self._state.observed.number:
            self._has_relevant_change |= _is_relevant_change(self._state.observed, observed)
            self._update_state(observed=observed)

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> NodeClassState:
        return self._state

    async def _resolve(self) -> None:
        name = self._state.name
        request = NodeClassRequest(name=name, restamp=bool(self._state.observed.stamps))
        try:
            result = await workflow.execute_activity_method(
                NodeClassActivities.resolve_node_class, request, **with_summary(RESOLVE, f"resolve {name}")
            )
        except ActivityError as error:
            message = str(error.cause or error)[:300]
            result = NodeClassResult(ready="Unknown", message=message, failed_lookups=message)
        if not result.exists:
            self._update_state(observed=self._state.observed.model_copy(update={"exists": False}))
        self._update_state(
            resolved_generation=result.generation,
            ready=result.ready,
            message=result.message,
            retry_after=result.retry_after,
        )
        self._record_error(result.failed_lookups)

    async def _finalize(self) -> bool:
        try:
            done: bool = await workflow.execute_activity_method(
                NodeClassActivities.finalize_node_class,
                NodeClassRequest(name=self._state.name),
                **with_summary(RESOLVE, "delete its AWS resources, remove the finalizer"),
            )
        except ActivityError as error:
            message = str(error.cause or error)[:300]
            self._update_state(message=message)
            self._record_error(message)
            self._is_blocked = False
            return False
        self._is_blocked = not done
        self._record_error("")
        self._update_state(message="" if done else f"waits for {self._state.observed.claims} NodeClaims")
        return done

    def _record_error(self, message: str) -> None:
        """Record a failure, or the end of failures, for the details in the Temporal UI."""
        if not message:
            self._update_state(consecutive_failures=0, failing_since=None, failure_message="")
            return
        since = self._state.failing_since or workflow.now()
        self._update_state(
            consecutive_failures=self._state.consecutive_failures + 1, failing_since=since, failure_message=message
        )

    async def _wait_for_change(self, deleting: bool) -> None:
        """Wait for a relevant change of the EC2NodeClass or the number of its NodeClaims, or the next refresh."""
        try:
            await workflow.wait_condition(
                lambda: self._has_relevant_change,
                timeout=self._next_delay(deleting),
                timeout_summary=f"before {self._state.name} is resolved again",
            )
        except TimeoutError:
            return

    def _next_delay(self, deleting: bool) -> timedelta:
        state = self._state
        if state.consecutive_failures:
            longest = min(RETRY_AFTER, FIRST_RETRY_AFTER * (1 << min(state.consecutive_failures - 1, 6)))
            soon = state.retry_after if state.consecutive_failures <= MAX_EARLY_RETRIES else None
            return min(longest, soon or longest)
        if deleting:
            return BLOCKED_RECHECK_INTERVAL if self._is_blocked else RETRY_AFTER
        default = REFRESH_INTERVAL if state.ready == "True" else RETRY_AFTER
        return min(default, state.retry_after or default)

    def _update_state(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _set_current_details(self) -> None:
        publish_details(current_details.render_nodeclass(self._state))


def _is_relevant_change(previous: ObservedNodeClass, observed: ObservedNodeClass) -> bool:
    changed = (observed.generation, observed.deleting, observed.exists) != (
        previous.generation,
        previous.deleting,
        previous.exists,
    )
    has_outdated_stamps = bool(observed.stamps) and observed.stamps != previous.stamps
    return changed or has_outdated_stamps or (observed.deleting and observed.claims != previous.claims)
