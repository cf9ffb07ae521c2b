"""Assertions that must become true, and assertions that must stay true."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from tenure.model.signals import REPEAT_QUERY
from tenure.sandbox.errors import ApiError

T = TypeVar("T")
TIMEOUT_SECONDS = 150.0
"""Seconds, far more than any wait needs, so that a slow machine fails no test."""
POLL_INTERVAL_SECONDS = 0.4
TRANSIENT_STATUSES = (
    RPCStatusCode.CANCELLED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.UNAVAILABLE,
    429,
    503,
    504,
)
"""Status codes of Temporal and of the API server. FAILED_PRECONDITION: a restarted worker does not poll yet."""


def is_transient(error: RPCError | ApiError) -> bool:
    """On a busy machine, Temporal's dev server sometimes reports its namespace as missing."""
    return error.status in TRANSIENT_STATUSES or str(error).startswith("Namespace default is not found")


async def wait_until(
    check: Callable[[], Awaitable[T]], *, seconds: float = TIMEOUT_SECONDS, poll_interval: float = POLL_INTERVAL_SECONDS
) -> T:
    """Repeat `check` until it raises no AssertionError. Returns its result, or raises its last error.

    A transient error counts as a failed attempt. The last attempt starts after the timeout, since the one before may
    have taken long.
    """
    deadline = time.monotonic() + seconds
    while True:
        last = time.monotonic() > deadline
        try:
            return await check()
        except AssertionError:
            if last:
                raise
        except (RPCError, ApiError) as error:
            if last or not is_transient(error):
                raise
        except aiohttp.ClientConnectionError:
            if last:
                raise
        await asyncio.sleep(poll_interval)


async def query_state(handle: WorkflowHandle[Any, Any], result_type: type[T]) -> T:
    """The workflow's state. A worker that has just loaded the run may reject the query, which is then repeated."""

    async def query() -> T:
        try:
            state: T = await handle.query("state", result_type=result_type)
        except WorkflowQueryFailedError as error:
            assert REPEAT_QUERY not in str(error), error
            raise
        return state

    return await wait_until(query)


async def assert_throughout(check: Callable[[], Awaitable[object]], *, seconds: float) -> None:
    """`check` succeeds now and at every poll in this time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await check()
        await asyncio.sleep(POLL_INTERVAL_SECONDS)
