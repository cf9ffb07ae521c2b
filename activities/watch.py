"""The activity that keeps the watch alive somewhere, and the one that plans where it lives.

`controller/` implements `WatchHost`; the Watch and Provisioning workflows call these. While a process hosts the
watch it also polls the plan queue, which `WatchHost.run` starts and stops.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from temporalio import activity

from activities.errors import faults_mapped, not_yet
from activities.heartbeats import heartbeating
from model.base import Message
from model.plans import PlanOutcome, PlanRequest


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


def _beat(progress: WatchProgress) -> None:
    activity.heartbeat(progress.model_dump(mode="json"))


class WatchActivities:
    def __init__(self, host: WatchHost) -> None:
        self._host = host

    @activity.defn
    @faults_mapped
    async def watch_cluster(self) -> None:
        """Runs for as long as this process may host the watch; a process that stops hands it on at once."""
        details = activity.info().heartbeat_details
        carried = WatchProgress.model_validate(details[0]) if details else None
        hosting = asyncio.create_task(self._host.run(carried, _beat))
        leaving = asyncio.create_task(activity.wait_for_worker_shutdown())
        try:
            await asyncio.wait({hosting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if hosting.done():
                return hosting.result()
        finally:
            leaving.cancel()
            hosting.cancel()
            await asyncio.gather(hosting, return_exceptions=True)
        raise not_yet("this worker stops; another one hosts the watch", again_in=timedelta(milliseconds=100))

    @activity.defn
    @faults_mapped
    async def plan_capacity(self, request: PlanRequest) -> PlanOutcome:
        """Polled on the plan queue only."""
        async with heartbeating():
            return await self._host.plan(request)
