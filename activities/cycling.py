"""An instance is stopped and started again, which moves it to other hardware: two steps, each safe to be repeated."""

import asyncio
from typing import Final, Literal

from temporalio import activity

from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from activities.ports import Instances
from model.faults import Fault, TryLater
from model.ids import instance_id_of
from model.steps import ClaimRef, Cycled

LOOK_EVERY = 2.0
"""Seconds between looks; looks of all nodes are batched into one DescribeInstances."""
_EBS: Final = "ebs"
_NO_ROOM: Final = frozenset({"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"})


class CyclingActivities:
    def __init__(self, *, instances: Instances) -> None:
        self._instances = instances

    @activity.defn
    @faults_mapped
    async def stop_instance(self, ref: ClaimRef) -> Cycled:
        """Returns once it is stopped. One whose root device is lost with a stop is left alone."""
        async with heartbeating():
            return await self._bring(ref, "stopped")

    @activity.defn
    @faults_mapped
    async def start_instance(self, ref: ClaimRef) -> Cycled:
        """Returns once it runs. Where EC2 has no room for it that is tried again, until nobody waits any more."""
        async with heartbeating():
            try:
                return await self._bring(ref, "running")
            except Fault as fault:
                if fault.code not in _NO_ROOM:
                    raise
                raise TryLater(fault.message, code=fault.code) from fault

    async def _bring(self, ref: ClaimRef, wanted: Literal["stopped", "running"]) -> Cycled:
        instance, asked = instance_id_of(ref.provider_id), False
        ask, before = (self._instances.stop, "running") if wanted == "stopped" else (self._instances.start, "stopped")
        while True:
            found = await self._instances.get(instance)
            if found is None or found.state == "shutting-down":
                return Cycled(outcome="gone", why=f"instance {instance} is gone")
            if found.root not in ("", _EBS):
                return Cycled(outcome="unfit", why=f"the root device of {instance} is {found.root}")
            if found.state == wanted:
                return Cycled(outcome="done")
            if found.state == before and not asked:
                asked = await ask(instance)
                continue
            await asyncio.sleep(LOOK_EVERY)
