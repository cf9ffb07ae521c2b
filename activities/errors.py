"""The one place where faults become Temporal's errors."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import wraps
from typing import ParamSpec, TypeVar

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from model.faults import Fault, Forbidden

P = ParamSpec("P")
R = TypeVar("R")

_MESSAGE_LIMIT = 300
"""Characters; Temporal cuts a failure at 4 KiB."""
_FORBIDDEN_PAUSE = timedelta(seconds=20)
"""A person has to mend a permission; asking more often only fills logs."""


def faults_mapped(call: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Raise ApplicationError for a Fault; anything else is a bug and stays as it is."""

    @wraps(call)
    async def mapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await call(*args, **kwargs)
        except Fault as fault:
            raise as_application_error(fault) from fault

    return mapped


def as_application_error(fault: Fault) -> ApplicationError:
    text = f"{fault.code}: {fault.message}" if fault.code else fault.message
    return ApplicationError(
        text[:_MESSAGE_LIMIT],
        type=type(fault).__name__,
        non_retryable=not fault.retryable,
        next_retry_delay=_delay(fault),
    )


def not_yet(message: str, *, again_in: timedelta) -> ApplicationError:
    """Waiting by retry: no history grows, no failure is counted."""
    return ApplicationError(
        message[:_MESSAGE_LIMIT],
        type="NotYet",
        next_retry_delay=again_in,
        category=ApplicationErrorCategory.BENIGN,
    )


def _delay(fault: Fault) -> timedelta | None:
    if fault.retry_after is not None:
        return timedelta(seconds=fault.retry_after)
    return _FORBIDDEN_PAUSE if isinstance(fault, Forbidden) else None
