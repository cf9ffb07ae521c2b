"""An activity that is to be told anew, or stopped, as soon as something else holds."""

from collections.abc import Callable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType


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
