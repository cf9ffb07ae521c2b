"""Faults as Temporal errors, heartbeats, concurrent calls, and retries of transient faults."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from tenure.model.errors import Fault, Forbidden, Throttled, TryLater

P = ParamSpec("P")
R = TypeVar("R")

_MESSAGE_LIMIT = 300
"""Characters; Temporal truncates a failure at 4 KiB."""
_FORBIDDEN_PAUSE = timedelta(seconds=20)
"""An operator must fix a permission, so retrying more often only fills logs."""


def map_faults(call: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Raise ApplicationError for a Fault. Any other exception is a bug and is not changed."""

    @wraps(call)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await call(*args, **kwargs)
        except Fault as fault:
            raise as_application_error(fault) from fault

    return wrapper


def as_application_error(fault: Fault) -> ApplicationError:
    return ApplicationError(
        fault.code_and_message[:_MESSAGE_LIMIT],
        type=type(fault).__name__,
        non_retryable=not fault.retryable,
        next_retry_delay=_retry_delay(fault),
        # The SDK logs each failure of another category, but an unreachable endpoint is already reported once.
        category=ApplicationErrorCategory.BENIGN if fault.is_unreachable else ApplicationErrorCategory.UNSPECIFIED,
    )


def _retry_delay(fault: Fault) -> timedelta | None:
    if fault.retry_after is not None:
        return timedelta(seconds=fault.retry_after)
    return _FORBIDDEN_PAUSE if isinstance(fault, Forbidden) else None


HEARTBEAT_EVERY_SECONDS = 1.5
"""Seconds; less than a third of the shortest heartbeat timeout. Activities notice a cancellation at a heartbeat."""
RARE_HEARTBEAT_SECONDS = 8.0
"""For hundreds of concurrent activities that no caller cancels, together with
`workflows.activity_options.RARE_HEARTBEAT`. Each heartbeat is a write in Temporal."""


@asynccontextmanager
async def background_heartbeat(
    details: Callable[[], tuple[Any, ...]] = tuple, *, every: float | None = None
) -> AsyncIterator[None]:
    """Send a heartbeat every `every` seconds until the end; the default is HEARTBEAT_EVERY_SECONDS. A short activity
    sends none, since each is an action. `details`: heartbeat details for the next attempt."""
    beating = asyncio.create_task(_send_heartbeats(details, every or HEARTBEAT_EVERY_SECONDS))
    try:
        yield
    finally:
        beating.cancel()


async def _send_heartbeats(details: Callable[[], tuple[Any, ...]], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        activity.heartbeat(*details())


AT_ONCE: Final = 16
T = TypeVar("T")


async def call_for_each(items: Iterable[T], call: Callable[[T], Awaitable[R]], *, at_once: int = AT_ONCE) -> list[R]:
    """Results in the order of `items`. After an error, all other items are still processed; then the first is
    raised."""
    semaphore = asyncio.Semaphore(at_once)

    async def call_with_limit(item: T) -> R:
        async with semaphore:
            return await call(item)

    results: list[R] = []
    for result in await asyncio.gather(*(call_with_limit(item) for item in items), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


MAX_RETRY_SECONDS: Final = 30.0
"""Seconds after which a fault no longer counts as temporary."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


async def retry_transient(
    call: Callable[[], Awaitable[T]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Retry TryLater and Throttled for up to MAX_RETRY_SECONDS. All other exceptions are raised immediately."""
    begun, pause = clock(), _FIRST_PAUSE
    while True:
        try:
            return await call()
        except (TryLater, Throttled):
            if clock() - begun >= MAX_RETRY_SECONDS:
                raise
        await sleep(pause * random.uniform(0.5, 1))
        pause = min(_LONGEST_PAUSE, 2 * pause)
