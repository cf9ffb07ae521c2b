"""Follows the histories of NodeClaim workflows event by event, so that faults can be injected after a given event."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.service import RPCError

from tenure.cli.nodes.workflows import nodeclaim_name
from tests.support.product.product import DedicatedProduct

POLL_SECONDS = 0.3
"""Seconds between polls for new workflows."""
FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
UNHANDLED_COMMAND = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND


class HistoryFollower:
    """`count`: number of events since `follow` began, of all NodeClaims."""

    def __init__(self, product: DedicatedProduct) -> None:
        self._product = product
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._event_received = asyncio.Condition()
        self.count = 0
        self.last = ""
        """The newest event, as text."""
        self.kinds = Counter[str]()
        self.failed_tasks: list[str] = []
        """Failed workflow tasks: a bug, or code that does not replay. Tasks of killed workers time out instead. The
        server also rejects the completion of a workflow that has just received a signal, and repeats the task."""

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[Self]:
        polling = asyncio.create_task(self._poll())
        try:
            yield self
        finally:
            tasks = [polling, *self._followed.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_until_count(self, count: int) -> None:
        """Wait until this many events were written."""
        async with self._event_received:
            await self._event_received.wait_for(lambda: self.count >= count)

    async def _poll(self) -> None:
        while True:
            try:
                for nodeclaim in await self._product.nodeclaim_workflows.list_running():
                    if nodeclaim.workflow_id not in self._followed:
                        self._followed[nodeclaim.workflow_id] = asyncio.create_task(
                            self._follow_history(nodeclaim.workflow_id)
                        )
            except RPCError:
                # Temporal is unavailable, and so are its events.
                pass
            await asyncio.sleep(POLL_SECONDS)

    async def _follow_history(self, workflow_id: str) -> None:
        handle, name = self._product.temporal.get_workflow_handle(workflow_id), nodeclaim_name(workflow_id)
        async for event in handle.fetch_history_events(wait_new_event=True):
            kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
            async with self._event_received:
                self.count += 1
                self.last = f"{kind} of {name}"
                self.kinds[kind] += 1
                failed = event.workflow_task_failed_event_attributes
                if event.event_type == FAILED and failed.cause != UNHANDLED_COMMAND:
                    self.failed_tasks.append(f"{name}: {failed.failure.message}")
                self._event_received.notify_all()
