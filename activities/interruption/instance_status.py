"""Instances' status, read once a minute: what is new is told to the nodes, what is over as well.

It comes back when there is something to remember, so that the workflow holds what is open and no successor in another
process takes for well what it has not seen.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.interruption.metrics import InterruptionMetrics
from activities.ports.interruption import InstanceStatuses, NodeTeller, Standing
from activities.runtime import patiently
from tenure.model.interruption.notices import KARPENTERS_KINDS, Notice, OpenNotice, StatusReport
from tenure.model.interruption.records import ReadingEnded, StatusAsked
from tenure.policy.interruption.timing import decide_status, still_open

log = structlog.get_logger(__name__)

EVERY: Final = timedelta(minutes=1)
"""Karpenter's (reference 5.1)."""
MOST_OPEN: Final = 1000
"""Notices that are remembered, so that the workflow's state stays small. What is beyond is told, and its end is not."""


class StatusReading:
    """One per process: it knows since when it sees checks fail of which EC2 does not say since when."""

    def __init__(
        self,
        *,
        statuses: InstanceStatuses,
        nodes: NodeTeller,
        metrics: InterruptionMetrics,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._statuses, self._nodes, self._metrics = statuses, nodes, metrics
        self._now, self._sleep = now, sleep
        self._seen: Mapping[tuple[str, str], datetime] = {}

    async def run(self, asked: StatusAsked) -> ReadingEnded:
        """Until cancelled, or until what is open has changed. Raises the Fault that keeps it from reading."""
        last = asked.last
        while True:
            if last is not None:
                await self._sleep(max(0.0, min((last + EVERY - self._now()), EVERY).total_seconds()))
            reports = await patiently(self._statuses.read, sleep=self._sleep)
            last = self._now()
            self._metrics.read("status")
            told = await self._look(reports, asked.told, last)
            if told != asked.told:
                return ReadingEnded(told=told, last=last)

    async def _look(
        self, reports: Sequence[StatusReport], told: tuple[OpenNotice, ...], now: datetime
    ) -> tuple[OpenNotice, ...]:
        """What is open after nodes were told; what could not be told is new again the next time."""
        ours = self._nodes.owns({one.instance_id for one in reports})
        mine = [one for one in reports if one.instance_id in ours]
        verdict = decide_status(mine, told=told, seen=self._seen, now=now)
        self._seen = verdict.seen
        for instance_id, notices in verdict.tell.items():
            standing = await self._tell(instance_id, notices)
            if standing == "told":
                self._count(notices, told)
            if standing in ("told", "repeated"):
                told = still_open(told, instance_id, notices)
            elif standing in ("over", "foreign"):
                told = tuple(one for one in told if one.instance_id != instance_id)
        return told[:MOST_OPEN]

    async def _tell(self, instance_id: str, notices: Sequence[Notice]) -> Standing:
        try:
            return await self._nodes.notice(instance_id, notices)
        except Exception as error:
            log.error("node not told of its instance's status", instance=instance_id, error=str(error)[:300])
            return "later"

    def _count(self, notices: Sequence[Notice], told: Sequence[OpenNotice]) -> None:
        known = {(one.notice.kind, one.notice.id) for one in told}
        for one in notices:
            if one.status == "announced" and (one.kind, one.id) not in known:
                self._metrics.unhealthy(KARPENTERS_KINDS[one.kind, "status"])
