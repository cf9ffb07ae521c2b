"""Repeats calls to which the time-skipping server, or a worker without the history, gives no response.

The server answers no query that arrives while the run continues as new, and a client waits half a minute. A worker that
loads a run for a query rejects it with `REPEAT_QUERY` if unhandled events came with it.
"""

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.client import Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from tenure.model.signals import REPEAT_QUERY

QUERY_TIMEOUT = timedelta(seconds=3)
GIVE_UP_SECONDS = 30.0
LOST_STATUSES = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)


class RepeatLostQueries(Interceptor):
    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _RepeatLostQueries(super().intercept_client(next))


class _RepeatLostQueries(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        if input.rpc_timeout is not None:
            return await super().query_workflow(input)
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                return await super().query_workflow(replace(input, rpc_timeout=QUERY_TIMEOUT))
            except RPCError as error:
                if error.status not in LOST_STATUSES or time.monotonic() > deadline:
                    raise
            except WorkflowQueryFailedError as error:
                if REPEAT_QUERY not in str(error) or time.monotonic() > deadline:
                    raise


def resume_broken_sleeps(environment: WorkflowEnvironment) -> None:
    """Let `environment.sleep` skip the rest of its time after a broken connection."""
    sleep = environment.sleep

    async def resumed(duration: timedelta | float) -> None:
        length = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        end = await environment.get_current_time() + length
        try:
            await sleep(length)
        except RPCError as error:
            if error.status not in LOST_STATUSES:
                raise
            if (remaining := end - await environment.get_current_time()) > timedelta(0):
                await sleep(remaining)

    environment.sleep = resumed  # type: ignore[method-assign]
