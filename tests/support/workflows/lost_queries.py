"""A client that repeats queries which the time-skipping server loses.

The server answers no query that arrives while the run continues as new. A client waits half a minute for the answer.
"""

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.client import Interceptor, OutboundInterceptor, QueryWorkflowInput
from temporalio.service import RPCError, RPCStatusCode

QUERY_TIMEOUT = timedelta(seconds=3)
GIVE_UP_SECONDS = 30.0
LOST = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)


class RepeatLostQueries(Interceptor):
    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _RepeatLostQueries(super().intercept_client(next))


class _RepeatLostQueries(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        if input.rpc_timeout is not None:
            return await super().query_workflow(input)
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                return await super().query_workflow(replace(input, rpc_timeout=QUERY_TIMEOUT))
            except RPCError as error:
                if error.status not in LOST or time.monotonic() > give_up:
                    raise
