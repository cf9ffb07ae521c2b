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

ROLL_AT_EVENTS = 500
"""A run longer than this continues as new in its next calm phase."""


class Options(TypedDict, total=False):
    start_to_close_timeout: timedelta
    schedule_to_start_timeout: timedelta
    schedule_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy
    cancellation_type: ActivityCancellationType


def _retry(first: float, factor: float, longest: float, attempts: int = 0) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=timedelta(seconds=first),
        backoff_coefficient=factor,
        maximum_interval=timedelta(seconds=longest),
        maximum_attempts=attempts,
    )


PREPARE: Options = {"start_to_close_timeout": timedelta(seconds=30), "retry_policy": _retry(1, 2, 15, attempts=6)}
CREATE_FLEET: Options = {
    "start_to_close_timeout": timedelta(seconds=120),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry(1, 2, 15),
}
PATCH: Options = {
    "start_to_close_timeout": timedelta(seconds=45),
    "retry_policy": _retry(0.5, 2, 10),
}
REPLICAS: Options = {
    "start_to_close_timeout": timedelta(minutes=2),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry(0.5, 2, 15, attempts=6),
}
"""Then the workflow says what is wrong, and asks again under the same plan."""
SELDOM: Options = {"heartbeat_timeout": 4 * HEARTBEAT}
"""Of what hundreds do at once and nobody stops: each heartbeat is a write of Temporal's."""
DRAIN: Options = {
    "start_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry(0.5, 2, 10),
}
HOOK: Options = {"heartbeat_timeout": 2 * HEARTBEAT, "retry_policy": _retry(0.5, 2, 10)}
"""Each try is bounded by what the hook's own time-out leaves."""
TERMINATE: Options = {
    "start_to_close_timeout": timedelta(minutes=5),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry(1, 2, 20),
}
PLAN: Options = {
    "start_to_close_timeout": timedelta(minutes=2),
    "schedule_to_start_timeout": timedelta(seconds=5),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry(0.5, 2, 5, attempts=3),
}
DECIDE: Options = {
    "start_to_close_timeout": timedelta(minutes=5),
    "schedule_to_start_timeout": timedelta(seconds=5),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry(0.5, 2, 5, attempts=2),
}
"""Then the workflow says what is wrong, and asks again by its own timer."""
COMMAND: Options = {
    "start_to_close_timeout": timedelta(minutes=2),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry(0.5, 2, 10),
}
WATCH: Options = {
    "start_to_close_timeout": timedelta(days=1),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry(0.5, 2, 5),
    "cancellation_type": ActivityCancellationType.TRY_CANCEL,
}
READ: Options = {
    "start_to_close_timeout": timedelta(days=1),
    "schedule_to_start_timeout": timedelta(seconds=30),
    "heartbeat_timeout": 2 * HEARTBEAT,
    "retry_policy": _retry(0.5, 2, 5),
    "cancellation_type": ActivityCancellationType.TRY_CANCEL,
}
"""A host that comes within the half minute reads on at once; then the workflow says that nobody does."""
READ_WELL_AFTER = timedelta(minutes=1)
"""What could not be read, and is for so long, is well again."""
LOOK: Options = {
    "start_to_close_timeout": timedelta(seconds=60),
    "retry_policy": _retry(0.5, 2, 10, attempts=5),
}
"""Then the workflow says what is wrong, and looks again soon."""
GATE: Options = {
    "start_to_close_timeout": timedelta(minutes=2),
    "retry_policy": _retry(1, 2, 5, attempts=2),
}
RESOLVE: Options = {
    "start_to_close_timeout": timedelta(seconds=60),
    "heartbeat_timeout": 3 * HEARTBEAT,
    "retry_policy": _retry(1, 2, 30, attempts=5),
}
"""Then the workflow says that it stumbles, and looks again by its own timer."""


UPKEEP: Options = {
    "start_to_close_timeout": timedelta(minutes=5),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": _retry(2, 2, 30, attempts=5),
}
"""Bounded as a whole by each task: what one run cannot do, the next one does."""


def roll_due() -> bool:
    """Whether this run is to continue as new in its next calm phase."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= ROLL_AT_EVENTS


def launch_options(cluster: str, pool: str, members: int) -> Any:
    """CreateFleet's own queue. A call for many goes before calls for one, pools take turns where the server can."""
    priority = Priority(priority_key=2 if members > 1 else 3, fairness_key=pool[:64] or None)
    return {"task_queue": ids.launch_queue(cluster), "priority": priority}


def leaving(options: Options, cluster: str, summary: str) -> Any:
    """Of a drain, a hook or a termination: hundreds of them wait at once, on a queue of their own."""
    return {**named(options, summary), "task_queue": ids.drain_queue(cluster)}


FORGET: Options = {
    "start_to_close_timeout": timedelta(seconds=15),
    "schedule_to_close_timeout": timedelta(minutes=1),
    "retry_policy": _retry(2, 2, 30, attempts=2),
}


def named(options: Options, summary: str) -> Any:
    """Options with the line that the Temporal UI shows."""
    return {**options, "summary": summary}


async def answered(activity: Callable[..., Any], asked: Any, options: Any, other: Callable[[], bool]) -> Any:
    """Its answer; None where it ended because `other` came to hold. What is being tried goes to its end first, so that
    two never run side by side. Raises ActivityError."""
    options = {**options, "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED}
    under_way = workflow.start_activity_method(activity, asked, **options)
    await workflow.wait_condition(lambda: under_way.done() or other())
    stopped = not under_way.done()
    if stopped:
        under_way.cancel()
    try:
        return await under_way
    except ActivityError as error:
        # `other` may hold no longer.
        if is_cancelled_exception(error) and stopped:
            return None
        raise


PATIENCE = timedelta(minutes=5)
AT_LEAST = timedelta(seconds=1)


def patience_of(now: datetime, *moments: datetime | None) -> timedelta:
    """Until the first of these moments, within reason."""
    until = min((one for one in moments if one), default=None)
    return min(PATIENCE, max(AT_LEAST, until - now)) if until else PATIENCE
