"""Calls of workflows: timeouts and retries of activities, and signals to other workflows."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypedDict

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeoutError
from temporalio.workflow import ActivityCancellationType

from tenure.model.base import Message
from tenure.model.nodeclaim.state import NodeClaimState
from workflows import ids

HEARTBEAT = timedelta(seconds=5)
"""The activity of a killed worker is retried after one to four times this interval."""

CONTINUE_AS_NEW_AT_EVENTS = 500
"""A longer run continues as new at its next wait."""


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
"""20 attempts take about three minutes. After that, the outbox sends other reports first."""
REPLICAS: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=2),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 15, attempts=6),
}
"""After the last attempt, the workflow reports the fault and retries the same plan."""
RARE_HEARTBEAT: ActivityOptions = {"heartbeat_timeout": 4 * HEARTBEAT}
"""For activities that run in hundreds and are not cancelled, since each heartbeat is a database write."""
DRAIN: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 10),
}
HOOK: ActivityOptions = {"heartbeat_timeout": 2 * HEARTBEAT, "retry_policy": _retry_policy(0.5, 2, 10)}
"""The hook's own timeout bounds each attempt."""
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
"""Then the workflow reports the fault and retries by its own timer."""
COMMAND: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=2),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry_policy(0.5, 2, 10),
}
OBSERVE: ActivityOptions = {
    "start_to_close_timeout": timedelta(seconds=60),
    "retry_policy": _retry_policy(0.5, 2, 10, attempts=5),
}
"""After the last attempt, the workflow reports the fault and retries soon."""
GATE: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=2),
    "retry_policy": _retry_policy(1, 2, 5, attempts=2),
}
RESOLVE: ActivityOptions = {
    "start_to_close_timeout": timedelta(seconds=60),
    "heartbeat_timeout": 3 * HEARTBEAT,
    "retry_policy": _retry_policy(1, 2, 30, attempts=5),
}
"""Then the workflow reports the fault and retries by its own timer."""


GARBAGE_COLLECTION: ActivityOptions = {
    "start_to_close_timeout": timedelta(minutes=5),
    "schedule_to_close_timeout": timedelta(minutes=15),
    "heartbeat_timeout": 4 * HEARTBEAT,
    "retry_policy": _retry_policy(2, 2, 30, attempts=5),
}
"""After a failure, the next sweep runs the tasks again."""


def is_continue_as_new_due() -> bool:
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= CONTINUE_AS_NEW_AT_EVENTS


def launch_options(cluster: str, pool: str, members: int) -> Any:
    """Launches of several nodes have priority over launches of one. The server balances NodePools if it supports
    fairness."""
    priority = Priority(priority_key=2 if members > 1 else 3, fairness_key=pool[:64] or None)
    return {"task_queue": ids.launch_queue(cluster), "priority": priority}


def drain_queue_options(options: ActivityOptions, state: NodeClaimState, summary: str) -> Any:
    """Drains, hooks and terminations have their own task queue, since hundreds may run at the same time. Those of
    interrupted nodes, which have little time, come first."""
    priority = Priority(priority_key=1 if state.interrupted else 3)
    return {
        **with_summary(options, summary),
        "task_queue": ids.drain_queue(state.identity.cluster),
        "priority": priority,
    }


def with_summary(options: ActivityOptions, summary: str) -> Any:
    """`summary`: shown in the Temporal UI."""
    return {**options, "summary": summary}


async def execute_unless(
    activity: Callable[..., Any], request: Any, options: Any, condition: Callable[[], bool]
) -> Any:
    """Run an activity, and cancel it if `condition` becomes true; None then.

    Waits for the end of the running attempt, so two activities never overlap. Raises ActivityError.
    """
    options = {**options, "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED}
    handle = workflow.start_activity_method(activity, request, **options)
    await workflow.wait_condition(lambda: handle.done() or condition())
    is_cancelled = not handle.done()
    if is_cancelled:
        handle.cancel()
    try:
        return await handle
    except ActivityError as error:
        # Do not evaluate `condition` again: it may be false now.
        if is_cancelled_exception(error) and is_cancelled:
            return None
        raise


def is_unpolled(error: BaseException) -> bool:
    """Whether an activity failed because no worker polled its task queue in time."""
    cause = error.__cause__
    return isinstance(cause, ActivityTimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START


async def try_signal(workflow_id: str, signal: str, message: Message) -> bool:
    """Signal another workflow. False if it is not running."""
    try:
        await workflow.get_external_workflow_handle(workflow_id).signal(signal, message)
    except ApplicationError:
        return False
    return True


MAX_POLL_TIMEOUT = timedelta(minutes=5)
MIN_POLL_TIMEOUT = timedelta(seconds=1)


def poll_timeout(now: datetime, *deadlines: datetime | None) -> timedelta:
    """Time until the earliest deadline, from MIN_POLL_TIMEOUT to MAX_POLL_TIMEOUT."""
    earliest = min((one for one in deadlines if one), default=None)
    return min(MAX_POLL_TIMEOUT, max(MIN_POLL_TIMEOUT, earliest - now)) if earliest else MAX_POLL_TIMEOUT
