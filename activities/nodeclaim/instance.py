"""The instance of a node: termination, or a stop and start, which moves it to other hardware.

Termination is one activity, which removes the finalizers when EC2 no longer lists the instance. All steps are
idempotent.
"""

import asyncio
from typing import Final, Literal

import structlog
from temporalio import activity

from activities.ports.core import ConditionPatch, Ports, find_nodeclaim
from activities.runtime import RARE_HEARTBEAT_SECONDS, background_heartbeat, map_faults
from tenure.apis import labels
from tenure.clock import utc_now
from tenure.model.base import REQUEST_PRIORITY, InstanceId, parse_instance_id
from tenure.model.errors import Fault, NotFound, TryLater
from tenure.model.nodeclaim.requests import InstanceStatus, NodeClaimRef, StopStartResult, TerminationRequest

log = structlog.get_logger(__name__)

FIRST_POLL_SECONDS = 1.0
"""Seconds between reads of a terminating instance. The reads of all nodes share DescribeInstances calls."""
MAX_POLL_SECONDS = 5.0
STOP_START_POLL_SECONDS = 2.0
"""Seconds between reads of a stopping or starting instance, which also share calls."""
_EBS: Final = "ebs"
_CAPACITY_ERRORS: Final = frozenset(
    {"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"}
)


class InstanceActivities:
    def __init__(self, ports: Ports) -> None:
        self._claims, self._nodes, self._instances = ports.claims, ports.nodes, ports.instances

    @activity.defn
    @map_faults
    async def terminate_instance(self, request: TerminationRequest) -> None:
        """Terminate the instance, then remove the finalizers of Node and NodeClaim. The NodeClaim's status may have an
        instance that the workflow does not know."""
        REQUEST_PRIORITY.set("bulk")
        async with background_heartbeat(every=RARE_HEARTBEAT_SECONDS):
            provider_id = request.claim.provider_id or await self._provider_id(request.claim)
            if provider_id:
                await self._terminate_and_wait(request.claim, parse_instance_id(provider_id))
            await self._release_objects(request.claim, provider_id)

    @activity.defn
    @map_faults
    async def read_instance_status(self, ref: NodeClaimRef) -> InstanceStatus:
        """The state of the instance in EC2; empty if EC2 no longer lists it."""
        found = await self._instances.get(parse_instance_id(ref.provider_id))
        return InstanceStatus(state=found.state, reason=found.state_reason) if found else InstanceStatus()

    async def _terminate_and_wait(self, ref: NodeClaimRef, instance: InstanceId) -> None:
        if not await self._instances.terminate(instance):
            return
        condition = ConditionPatch(type=labels.INSTANCE_TERMINATING, status="True")
        await self._claims.patch(ref.name, ref.uid, conditions=(condition,), now=utc_now())
        pause = FIRST_POLL_SECONDS
        while await self._instances.get(instance) is not None:
            await asyncio.sleep(pause)
            pause = min(MAX_POLL_SECONDS, pause * 1.5)

    async def _release_objects(self, ref: NodeClaimRef, provider_id: str) -> None:
        """Release the NodeClaim last, since a retry needs it."""
        names = {ref.node_name} if ref.node_name else set()
        if provider_id and not names:
            names = {node.name for node in await self._nodes.find_by_provider_id(provider_id)}
        for name in sorted(names):
            await self._release_node(name, provider_id)
        await self._claims.release(ref.name, ref.uid)

    async def _release_node(self, name: str, provider_id: str) -> None:
        node = await self._nodes.get(name)
        if node is None or node.provider_id != provider_id:
            return
        try:
            if not node.deleting:
                await self._nodes.delete(name, node.uid)
            await self._nodes.release(name, node.uid)
        except NotFound:
            return
        log.info("deleted node", Node={"name": name}, **{"provider-id": provider_id})

    async def _provider_id(self, ref: NodeClaimRef) -> str:
        claim = await find_nodeclaim(self._claims, ref.name, ref.uid)
        return claim.status.provider_id if claim else ""

    @activity.defn
    @map_faults
    async def stop_instance(self, ref: NodeClaimRef) -> StopStartResult:
        """Stop the instance and return when it is stopped. `unfit` if a stop would lose its root device."""
        async with background_heartbeat():
            return await self._reach_state(ref, "stopped")

    @activity.defn
    @map_faults
    async def start_instance(self, ref: NodeClaimRef) -> StopStartResult:
        """Start the instance and return when it runs. Raises TryLater without EC2 capacity."""
        async with background_heartbeat():
            try:
                return await self._reach_state(ref, "running")
            except Fault as fault:
                if fault.code not in _CAPACITY_ERRORS:
                    raise
                raise TryLater(fault.message, code=fault.code) from fault

    async def _reach_state(self, ref: NodeClaimRef, desired: Literal["stopped", "running"]) -> StopStartResult:
        instance, is_requested = parse_instance_id(ref.provider_id), False
        request_state, before = (
            (self._instances.stop, "running") if desired == "stopped" else (self._instances.start, "stopped")
        )
        while True:
            found = await self._instances.get(instance)
            if found is None or found.state == "shutting-down":
                return StopStartResult(outcome="gone", why=f"instance {instance} is gone")
            if found.root not in ("", _EBS):
                return StopStartResult(outcome="unfit", why=f"the root device of {instance} is {found.root}")
            if found.state == desired:
                return StopStartResult(outcome="done")
            if found.state == before and not is_requested:
                is_requested = await request_state(instance)
                continue
            await asyncio.sleep(STOP_START_POLL_SECONDS)
