"""The readers of AWS interruption messages: the queue and the instance status, each in its own task.

The host of the watch runs them, since its cache has the node of each instance. The Interruption workflow stores their
results for the next host. A signal that Temporal does not accept is sent again with the next result: messages are read
and pods are evicted meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Literal

import structlog
from temporalio.client import Client

from activities.interruption.instance_status import InstanceStatusReader, OpenMessages
from activities.interruption.metrics import InterruptionMetrics
from activities.interruption.queue_consumer import QueueConsumer
from tenure.clock import utc_now
from tenure.controller.temporal.client import try_signal
from tenure.controller.temporal.queries import query_or_none
from tenure.model.base import Message
from tenure.model.errors import Fault
from tenure.model.interruption.records import InterruptionState, MessageCounts, OpenInterruptions, SourceReport
from workflows import ids

log = structlog.get_logger(__name__)

Source = Literal["messages", "statuses"]
MAX_PAUSE_SECONDS: Final = 60.0
"""Longest pause between attempts to read a source."""
RECOVERED_AFTER_SECONDS: Final = 60.0
"""How long reading must succeed before it counts as recovered."""
COUNTS_SECONDS: Final = 60.0
"""Interval of the message counts. An unchanged count is not signaled."""
_QUERY_RETRY_SECONDS: Final = 5.0
_RPC_TIMEOUT: Final = timedelta(seconds=10)
_FAULT_LIMIT: Final = 300


class InterruptionReaders:
    """`make_consumer`: None without a queue."""

    def __init__(
        self,
        temporal: Client,
        cluster: str,
        *,
        make_consumer: Callable[[], QueueConsumer] | None,
        statuses: InstanceStatusReader,
        metrics: InterruptionMetrics,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._temporal, self._workflow_id = temporal, ids.interruption(cluster)
        self._make_consumer, self._statuses, self._metrics = make_consumer, statuses, metrics
        self._open_messages: OpenMessages = ()
        self._now, self._sleep = now, sleep
        self._reported_faults: dict[Source, str] = {}
        """Empty for a recovered source. The last result of another process is not known."""
        self._failures: Counter[Source] = Counter()
        self._counted = Counter(metrics.message_counts)
        """The counts that the workflow has."""

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_statuses(), name="instance-status")
                if make_consumer := self._make_consumer:
                    group.create_task(self._read_repeatedly("messages", lambda: make_consumer().run()), name="queue")
                    group.create_task(self._report_counts_repeatedly(), name="message-counts")
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._report_counts()

    async def _read_statuses(self) -> None:
        while (state := await query_or_none(self._temporal, self._workflow_id, "state", InterruptionState)) is None:
            await self._sleep(_QUERY_RETRY_SECONDS)
        self._open_messages = state.open_interruptions
        await self._read_repeatedly("statuses", lambda: self._statuses.run(self._open_messages, self._report_open))

    async def _report_open(self, open_messages: OpenMessages) -> bool:
        self._open_messages = open_messages
        return await self._signal("report_open_interruptions", OpenInterruptions(open_interruptions=open_messages))

    async def _read_repeatedly(self, source: Source, read: Callable[[], Awaitable[None]]) -> None:
        """`read` runs until it raises an error, which is reported. The pause doubles after each further failure."""
        while True:
            recovery = asyncio.create_task(self._report_recovery(source), name=f"{source}-recovery")
            try:
                await read()
            except Exception as error:
                fault = error.code_and_message if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
                log.warning("source not read", source=source, fault=fault)
                await self._report(source, fault[:_FAULT_LIMIT])
            finally:
                recovery.cancel()
            await self._sleep(min(MAX_PAUSE_SECONDS, 2.0 ** min(self._failures[source], 6)))
            self._failures[source] += 1

    async def _report_recovery(self, source: Source) -> None:
        await self._sleep(RECOVERED_AFTER_SECONDS)
        self._failures[source] = 0
        while not await self._report(source, ""):
            await self._sleep(RECOVERED_AFTER_SECONDS)

    async def _report(self, source: Source, fault: str) -> bool:
        """Repeated results are not signaled, since each signal is a Temporal action."""
        if self._reported_faults.get(source) == fault:
            return True
        accepted = await self._signal("report_source", SourceReport(source=source, fault=fault, at=self._now()))
        if accepted:
            self._reported_faults[source] = fault
        return accepted

    async def _report_counts_repeatedly(self) -> None:
        while True:
            await self._sleep(COUNTS_SECONDS)
            await self._report_counts()

    async def _report_counts(self) -> None:
        counted = Counter(self._metrics.message_counts)
        added = counted - self._counted
        if added and await self._signal("add_message_counts", MessageCounts(since=self._now(), counts=dict(added))):
            self._counted = counted

    async def _signal(self, name: str, argument: Message) -> bool:
        return await try_signal(self._temporal, self._workflow_id, name, argument, _RPC_TIMEOUT)
