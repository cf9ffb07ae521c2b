"""What the process that hosts the watch does for voluntary disruption: deciding, and making replacements.

Polled on the plan queue only, like plans of provisioning; the Cluster workflow and those of commands call these.
"""

from temporalio import activity

from activities.disrupting_ports import DisruptionHost
from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from model.disrupting import DecideAsked, Decided, ReplaceAsked, Replaced


class DisruptingActivities:
    def __init__(self, host: DisruptionHost) -> None:
        self._host = host

    @activity.defn
    @faults_mapped
    async def decide_disruption(self, asked: DecideAsked) -> Decided:
        """One pass: what could go now, and what would be done about it. Changes nothing."""
        async with heartbeating():
            return await self._host.decide(asked)

    @activity.defn
    @faults_mapped
    async def make_replacements(self, asked: ReplaceAsked) -> Replaced:
        """Check a proposal once more and make its replacements. A repeat makes the same, under the same names."""
        async with heartbeating():
            return await self._host.replace(asked)
