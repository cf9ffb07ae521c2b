"""What nodes have shown of their machines, as the Provisioning workflow keeps it: for launches, without the watch."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from model.learnt import Learnt

log = structlog.get_logger(__name__)

_ANSWER_IN: Final = timedelta(seconds=2)
_FRESH_SECONDS: Final = 2.0
"""Launches that come together ask once."""


class KeptMachines:
    """Satisfies `activities.ports.Machines`."""

    def __init__(self, client: Client, workflow_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._workflow_id, self._clock = client, workflow_id, clock
        self._asking = asyncio.Lock()
        self._known, self._asked_at = Learnt(), -_FRESH_SECONDS

    async def learnt(self) -> Learnt:
        """The last known when there is no answer at once: a node that is too small is worse than none, but not much."""
        async with self._asking:
            if self._clock() - self._asked_at >= _FRESH_SECONDS:
                self._known, self._asked_at = await self._ask(), self._clock()
            return self._known

    async def _ask(self) -> Learnt:
        handle = self._client.get_workflow_handle(self._workflow_id)
        try:
            asking = handle.query("machines", result_type=Learnt, rpc_timeout=_ANSWER_IN)
            # The client repeats calls that time out, so that the time-out of a call is not the end of it.
            known: Learnt = await asyncio.wait_for(asking, _ANSWER_IN.total_seconds())
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                log.warning("what nodes have shown is not told", error=str(error))
        except (TimeoutError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            log.warning("what nodes have shown is not told", error=str(error) or "no answer")
        else:
            return known
        return self._known
