"""The histories of NodeClaim workflows, event by event as Temporal writes them: moments to do harm at."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError

from tenure.cli.nodes.workflows import name_of
from tests.support.product.product import OwnProduct

LOOK_EVERY = 0.3
"""Seconds between looks for workflows that are not followed yet."""
FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED


class Histories:
    """`count` is how many events were written since `follow` began, of whichever NodeClaim."""

    def __init__(self, product: OwnProduct) -> None:
        self._product = product
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._heard = asyncio.Condition()
        self.count = 0
        self.last = ""
        """The newest event, in words."""
        self.kinds = Counter[str]()
        self.failed_tasks: list[str] = []
        """Workflow tasks that failed: a bug, or code that does not replay. Killed workers' tasks time out."""

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[Self]:
        looking = asyncio.create_task(self._look())
        try:
            yield self
        finally:
            tasks = [looking, *self._followed.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def reach(self, count: int) -> None:
        """Until so many events were written."""
        async with self._heard:
            await self._heard.wait_for(lambda: self.count >= count)

    async def _look(self) -> None:
        while True:
            try:
                for life in await self._product.lives.running():
                    if life.workflow_id not in self._followed:
                        self._followed[life.workflow_id] = asyncio.create_task(self._read(life.workflow_id))
            except RPCError:
                # Temporal is away; so are the events.
                pass
            await asyncio.sleep(LOOK_EVERY)

    async def _read(self, workflow_id: str) -> None:
        handle, name = self._product.temporal.get_workflow_handle(workflow_id), name_of(workflow_id)
        async for event in handle.fetch_history_events(wait_new_event=True):
            kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
            async with self._heard:
                self.count += 1
                self.last = f"{kind} of {name}"
                self.kinds[kind] += 1
                if event.event_type == FAILED:
                    self.failed_tasks.append(f"{name}: {event.workflow_task_failed_event_attributes.failure.message}")
                self._heard.notify_all()
