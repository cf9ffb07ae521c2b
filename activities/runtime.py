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
"""Characters; Temporal cuts a failure at 4 KiB."""
_FORBIDDEN_PAUSE = timedelta(seconds=20)
"""An operator has to fix a permission; retrying more often only fills logs."""


def map_faults(call: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Raise ApplicationError for a Fault; anything else is a bug and stays as it is."""

    @wraps(call)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await call(*args, **kwargs)
        except Fault as fault:
            raise as_application_error(fault) from fault

    return wrapper


def as_application_error(fault: Fault) -> ApplicationError:
    text = f"{fault.code}: {fault.message}" if fault.code else fault.message
    return ApplicationError(
        text[:_MESSAGE_LIMIT],
        type=type(fault).__name__,
        non_retryable=not fault.retryable,
        next_retry_delay=_retry_delay(fault),
        # The SDK logs each failure of another category, and the endpoint is reported once.
        category=ApplicationErrorCategory.BENIGN if fault.is_unreachable else ApplicationErrorCategory.UNSPECIFIED,
    )


def not_yet_error(message: str, *, retry_after: timedelta) -> ApplicationError:
    """Waiting by retry: no history grows, no failure is counted."""
    return ApplicationError(
        message[:_MESSAGE_LIMIT], type="NotYet", next_retry_delay=retry_after, category=ApplicationErrorCategory.BENIGN
    )


def _retry_delay(fault: Fault) -> timedelta | None:
    if fault.retry_after is not None:
        return timedelta(seconds=fault.retry_after)
    return _FORBIDDEN_PAUSE if isinstance(fault, Forbidden) else None


HEARTBEAT_EVERY_SECONDS = 1.5
"""Seconds; less than a third of the shortest heartbeat time-out. With one, an activity hears that it is cancelled."""
RARE_HEARTBEAT_SECONDS = 8.0
"""For hundreds of concurrent activities that no caller cancels, together with
`workflows.activity_options.RARE_HEARTBEAT`. Each heartbeat is a write in Temporal."""


@asynccontextmanager
async def background_heartbeat(
    details: Callable[[], tuple[Any, ...]] = tuple, *, every: float = HEARTBEAT_EVERY_SECONDS
) -> AsyncIterator[None]:
    """Send a heartbeat now and `every` so many seconds until the end; `details` is what the next try gets to know."""
    activity.heartbeat(*details())
    beating = asyncio.create_task(_send_heartbeats(details, every))
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
    """In their order. A fault of one keeps none of the others from being done; the first is raised after all."""
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
"""Seconds after which a fault is not taken to be passing any more."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


async def retry_transient(
    call: Callable[[], Awaitable[T]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Raises every other fault at once, and one of these when it has lasted for half a minute."""
    begun, pause = clock(), _FIRST_PAUSE
    while True:
        try:
            return await call()
        except (TryLater, Throttled):
            if clock() - begun >= MAX_RETRY_SECONDS:
                raise
        await sleep(pause * random.uniform(0.5, 1))
        pause = min(_LONGEST_PAUSE, 2 * pause)
