"""The activity that keeps the watch alive somewhere, and the one that plans where it lives.

`controller/` implements `WatchHost`; the Watch and Provisioning workflows call these. While a process hosts the
watch it also polls the plan queue, which `WatchHost.run` starts and stops.

What the process that hosts the watch does for voluntary disruption: deciding, and making replacements.

Polled on the plan queue only, like plans of provisioning; the Cluster workflow and those of commands call these.

What the process that hosts the watch tells people of voluntary disruption. Polled on the plan queue only.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from temporalio import activity

from activities.ports.disruption import DisruptionHost
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
    """What rides in the heartbeat, so that a successor signals only differences."""

    digests: dict[str, str] = {}
    """Workflow id to a short hash of what was last signalled to it."""


class WatchHost(Protocol):
    async def run(self, carried: WatchProgress | None, heartbeat: Callable[[WatchProgress], None]) -> None:
        """Watch until cancelled or until another controller takes over; call `heartbeat` every second or so."""
        ...

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        """One pass: plan on the live caches, create the NodeClaims, return names and counts."""
        ...


def _send_heartbeat(progress: WatchProgress) -> None:
    activity.heartbeat(progress.model_dump(mode="json"))


class WatchActivities:
    def __init__(self, host: WatchHost) -> None:
        self._host = host

    @activity.defn
    @map_faults
    async def watch_cluster(self) -> None:
        """Runs for as long as this process may host the watch; a process that stops hands it on at once."""
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
        """Polled on the plan queue only."""
        async with background_heartbeat():
            return await self._host.plan(request)


class DisruptionPlanningActivities:
    def __init__(self, host: DisruptionHost) -> None:
        self._host = host

    @activity.defn
    @map_faults
    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        """One pass: what could go now, and what would be done about it. Changes nothing."""
        async with background_heartbeat():
            return await self._host.compute_disruption(request)

    @activity.defn
    @map_faults
    async def create_replacements(self, request: ReplacementRequest) -> ReplacementResult:
        """Check a proposal once more and make its replacements. A repeat makes the same, under the same names."""
        async with background_heartbeat():
            return await self._host.create_replacements(request)


class DisruptionPreviewHost(Protocol):
    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        """What would be done now, or the verdict on one node; changes nothing."""
        ...


class DisruptionPreviewActivities:
    def __init__(self, host: DisruptionPreviewHost) -> None:
        self._host = host

    @activity.defn
    @map_faults
    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        """From a pass that is made for it."""
        async with background_heartbeat():
            return await self._host.preview_disruption(request)
