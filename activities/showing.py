"""What the process that hosts the watch tells people of voluntary disruption. Polled on the plan queue only."""

from typing import Protocol

from temporalio import activity

from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from model.showing import ShowAsked, Shown


class ShowHost(Protocol):
    async def show(self, asked: ShowAsked) -> Shown:
        """What would be done now, or the verdict on one node; changes nothing."""
        ...


class ShowingActivities:
    def __init__(self, host: ShowHost) -> None:
        self._host = host

    @activity.defn
    @faults_mapped
    async def show_disruption(self, asked: ShowAsked) -> Shown:
        """From a pass that is made for it."""
        async with heartbeating():
            return await self._host.show(asked)
