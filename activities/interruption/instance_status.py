"""Instance status, read once a minute. Nodes are notified of new and of ended messages.

The Interruption workflow stores the open messages, since the next host of the watch may be another process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.interruption.metrics import InterruptionMetrics
from activities.ports.interruption import InstanceStatuses, NodeInterruptionNotifier, NotifyOutcome
from activities.runtime import retry_transient
from tenure.model.interruption.messages import KARPENTERS_KINDS, InterruptionMessage, OpenInterruption, StatusReport
from tenure.policy.interruption.due_times import decide_status, update_open_messages

log = structlog.get_logger(__name__)

POLL_INTERVAL: Final = timedelta(minutes=1)
"""Karpenter's interval (reference 5.1)."""
MAX_OPEN: Final = 1000
"""Messages in the workflow state, which must stay small. The end of a message beyond this limit is not reported."""

OpenMessages = tuple[OpenInterruption, ...]


class InstanceStatusReader:
    """One per process, since it stores the first observation of failed checks without ImpairedSince."""

    def __init__(
        self,
        *,
        statuses: InstanceStatuses,
        nodes: NodeInterruptionNotifier,
        metrics: InterruptionMetrics,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._statuses, self._nodes, self._metrics = statuses, nodes, metrics
        self._now, self._sleep = now, sleep
        self._observed_since: Mapping[tuple[str, str], datetime] = {}

    async def run(self, open_messages: OpenMessages, report: Callable[[OpenMessages], Awaitable[bool]]) -> None:
        """Run until cancelled. `report` is called with changed open messages until it succeeds. Raises Fault if the
        status cannot be read."""
        reported = open_messages
        while True:
            reports = await retry_transient(self._statuses.read, sleep=self._sleep)
            self._metrics.record_read("status")
            open_messages = await self._process_reports(reports, open_messages, self._now())
            if open_messages != reported and await report(open_messages):
                reported = open_messages
            await self._sleep(POLL_INTERVAL.total_seconds())

    async def _process_reports(
        self, reports: Sequence[StatusReport], open_messages: OpenMessages, now: datetime
    ) -> OpenMessages:
        """Notify the nodes. Returns the open messages; an undelivered message is new again at the next poll."""
        ours = self._nodes.find_owned({one.instance_id for one in reports})
        relevant = [one for one in reports if one.instance_id in ours]
        result = decide_status(relevant, open_messages=open_messages, failing_since=self._observed_since, now=now)
        self._observed_since = result.failing_since
        for instance_id, messages in result.by_instance.items():
            outcome = await self._notify_node(instance_id, messages)
            if outcome == "notified":
                self._count_unhealthy(messages, open_messages)
            if outcome in ("notified", "repeated"):
                open_messages = update_open_messages(open_messages, instance_id, messages)
            elif outcome in ("over", "foreign"):
                open_messages = tuple(one for one in open_messages if one.instance_id != instance_id)
        return open_messages[:MAX_OPEN]

    async def _notify_node(self, instance_id: str, messages: Sequence[InterruptionMessage]) -> NotifyOutcome:
        try:
            return await self._nodes.notify(instance_id, messages)
        except Exception as error:
            log.error("instance status not delivered", instance=instance_id, error=str(error)[:300])
            return "later"

    def _count_unhealthy(
        self, messages: Sequence[InterruptionMessage], open_messages: Sequence[OpenInterruption]
    ) -> None:
        known = {(one.message.kind, one.message.id) for one in open_messages}
        for one in messages:
            if one.status == "announced" and (one.kind, one.id) not in known:
                self._metrics.record_unhealthy(KARPENTERS_KINDS[one.kind, "status"])
