"""The one table of time-outs and retries. Phases bound the whole; these bound single tries.

An activity that is to be told anew, or stopped, as soon as something else holds.

How long an activity stays with a node whose pods leave, before it comes back in any case.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypedDict

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from workflows import ids

HEARTBEAT = timedelta(seconds=5)
"""An activity whose worker was killed is tried elsewhere after this long."""

CONTINUE_AS_NEW_AT_EVENTS = 500
"""A run longer than this continues as new in its next calm phase."""


class ActivityOptions(TypedDict, total=False):
    start_to_close_timeout: timedelta
    schedule_to_start_timeout: timedelta
    schedule_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy
    cancellation_type: ActivityCancellationType


def _retry_policy(initial_seconds: float, backoff: float, max_seconds: float, attempts: int = 0) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=timedelta(seconds=initial_seconds),
        backoff_coefficient=backoff,
        maximum_interval=timedelta(seconds=max_seconds),
        maximum_attempts=attempts,
    )


PREPARE: ActivityOptions = {
    "start_to_close_timeout": timedelta(seconds=30),
    "retry_policy": _retry_policy(1, 2, 15, attempts=6),
}
CREATE_FLEET: ActivityOptions = {
    "start_to_close_timeout": timedelta(seconds=120),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry_policy(1, 2, 15),
}
PATCH: ActivityOptions = {
    "start_to_close_timeout": timedelta(seconds=45),
    "retry_policy": _retry_policy(0.5, 2, 10),
}
REPORT: ActivityOptions = {**PATCH, "retry_policy": _retry_policy(0.5, 2, 10, attempts=20)}
"""About three minutes. Then the outbox sends other reports first."""
REPLICAS: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=2),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 15, attempts=6),
}
"""Then the workflow says what is wrong, and asks again under the same plan."""
RARE_HEARTBEAT: ActivityOptions = {"heartbeat_timeout": 4 * HEARTBEAT}
"""Of what hundreds do at once and nobody stops: each heartbeat is a write of Temporal's."""
DRAIN: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 10),
}
HOOK: ActivityOptions = {"heartbeat_timeout": 2 * HEARTBEAT, "retry_policy": _retry_policy(0.5, 2, 10)}
"""Each try is bounded by what the hook's own time-out leaves."""
TERMINATE: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=5),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry_policy(1, 2, 20),
}
PLAN: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=2),
    "schedule_to_start_timeout": timedelta(seconds=5),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 5, attempts=3),
}
DECIDE: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=5),
    "schedule_to_start_timeout": timedelta(seconds=5),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 5, attempts=2),
}
"""Then the workflow says what is wrong, and asks again by its own timer."""
COMMAND: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=2),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 10),
}
WATCH: ActivityOptions = {
    "start_to_close_timeout": timedelta(days=1),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 5),
    "cancellation_type": ActivityCancellationType.TRY_CANCEL,
}
READ: ActivityOptions = {
    "start_to_close_timeout": timedelta(days=1),
    "schedule_to_start_timeout": timedelta(seconds=30),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 5),
    "cancellation_type": ActivityCancellationType.TRY_CANCEL,
}
"""A host that comes within the half minute reads on at once; then the workflow says that nobody does."""
READ_RECOVERED_AFTER = timedelta(minutes=1)
"""What could not be read, and is for so long, is well again."""
OBSERVE: ActivityOptions = {
    "start_to_close_timeout": timedelta(seconds=60),
    "retry_policy": _retry_policy(0.5, 2, 10, attempts=5),
}
"""Then the workflow says what is wrong, and looks again soon."""
GATE: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=2),
    "retry_policy": _retry_policy(1, 2, 5, attempts=2),
}
RESOLVE: ActivityOptions = {
    "start_to_close_timeout": timedelta(seconds=60),
    "heartbeat_timeout": 3 * HEARTBEAT,
    "retry_policy": _retry_policy(1, 2, 30, attempts=5),
}
"""Then the workflow says that it stumbles, and looks again by its own timer."""


GARBAGE_COLLECTION: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=5),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry_policy(2, 2, 30, attempts=5),
}
"""Bounded as a whole by each task: what one run cannot do, the next one does."""


def is_continue_as_new_due() -> bool:
    """Whether this run is to continue as new in its next calm phase."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= CONTINUE_AS_NEW_AT_EVENTS


def launch_options(cluster: str, pool: str, members: int) -> Any:
    """CreateFleet's own queue. A call for many goes before calls for one, pools take turns where the server can."""
    priority = Priority(priority_key=2 if members > 1 else 3, fairness_key=pool[:64] or None)
    return {"task_queue": ids.launch_queue(cluster), "priority": priority}


def drain_queue_options(options: ActivityOptions, cluster: str, summary: str) -> Any:
    """Of a drain, a hook or a termination: hundreds of them wait at once, on a queue of their own."""
    return {**with_summary(options, summary), "task_queue": ids.drain_queue(cluster)}


DELETE_RUN: ActivityOptions = {
    "start_to_close_timeout": timedelta(seconds=15),
    "schedule_to_close_timeout": timedelta(minutes=1),
    "retry_policy": _retry_policy(2, 2, 30, attempts=2),
}


def with_summary(options: ActivityOptions, summary: str) -> Any:
    """Options with the line that the Temporal UI shows."""
    return {**options, "summary": summary}


async def execute_unless(
    activity: Callable[..., Any], request: Any, options: Any, condition: Callable[[], bool]
) -> Any:
    """Its answer; None where it ended because `condition` came to hold. What is being tried goes to its end first, so
    that
    two never run side by side. Raises ActivityError."""
    options = {**options, "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED}
    handle = workflow.start_activity_method(activity, request, **options)
    await workflow.wait_condition(lambda: handle.done() or condition())
    is_cancelled = not handle.done()
    if is_cancelled:
        handle.cancel()
    try:
        return await handle
    except ActivityError as error:
        # `condition` may hold no longer.
        if is_cancelled_exception(error) and is_cancelled:
            return None
        raise


MAX_POLL_TIMEOUT = timedelta(minutes=5)
MIN_POLL_TIMEOUT = timedelta(seconds=1)


def poll_timeout(now: datetime, *deadlines: datetime | None) -> timedelta:
    """Until the first of these moments, within reason."""
    earliest = min((one for one in deadlines if one), default=None)
    return min(MAX_POLL_TIMEOUT, max(MIN_POLL_TIMEOUT, earliest - now)) if earliest else MAX_POLL_TIMEOUT
