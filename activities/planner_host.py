"""Activities of the process that hosts the watch: the watch itself, on the main task queue, and plans from its cache.

`PlannerHost.run` polls the plan queue while the process hosts the watch.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from temporalio import activity

from activities.runtime import background_heartbeat, map_faults, not_yet_error
from tenure.model.base import Message
from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlanOutcome, PlanRequest


class WatchProgress(Message):
    """Heartbeat details, so that the next host signals only differences."""

    digests: dict[str, str] = {}
    """By workflow ID: a short hash of the last observation that was signaled."""


class PlannerHost(Protocol):
    async def run(self, carried: WatchProgress | None, heartbeat: Callable[[WatchProgress], None]) -> None:
        """Watch until cancelled or until another controller takes over. Call `heartbeat` about once a second."""

    async def plan(self, request: PlanRequest) -> PlanOutcome: ...

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision: ...

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult: ...

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus: ...


def _send_heartbeat(progress: WatchProgress) -> None:
    activity.heartbeat(progress.model_dump(mode="json"))


class PlannerHostActivities:
    def __init__(self, host: PlannerHost) -> None:
        self._host = host

    @activity.defn
    @map_faults
    async def watch_cluster(self) -> None:
        """Run while this process may host the watch. At worker shutdown, another process takes over immediately."""
        details = activity.info().heartbeat_details
        carried = WatchProgress.model_validate(details[0]) if details else None
        hosting = asyncio.create_task(self._host.run(carried, _send_heartbeat))
        shutdown = asyncio.create_task(activity.wait_for_worker_shutdown())
        try:
            await asyncio.wait({hosting, shutdown}, return_when=asyncio.FIRST_COMPLETED)
            if hosting.done():
                return hosting.result()
        finally:
            shutdown.cancel()
            hosting.cancel()
            await asyncio.gather(hosting, return_exceptions=True)
        raise not_yet_error("this worker stops; another one hosts the watch", retry_after=timedelta(milliseconds=100))

    @activity.defn
    @map_faults
    async def plan_capacity(self, request: PlanRequest) -> PlanOutcome:
        """Run one pass: plan, and create the NodeClaims. Returns names and counts."""
        async with background_heartbeat():
            return await self._host.plan(request)

    @activity.defn
    @map_faults
    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        """The candidates and the proposed commands of one pass. Changes nothing."""
        async with background_heartbeat():
            return await self._host.compute_disruption(request)

    @activity.defn
    @map_faults
    async def create_replacements(self, request: ReplacementRequest) -> ReplacementResult:
        """Validate a proposal again and create its replacements. A retry creates them under the same names."""
        async with background_heartbeat():
            return await self._host.create_replacements(request)

    @activity.defn
    @map_faults
    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        """The commands of a pass made for this request, or the verdict on one node. Changes nothing."""
        async with background_heartbeat():
            return await self._host.preview_disruption(request)
