"""The steps of a reboot for repair that follow the request to EC2. `repair.py` has those before it."""

from temporalio import activity

from activities.nodeclaim.eviction import withdraw_requests
from activities.nodeclaim.repair import rebooting_condition
from activities.ports.core import ConditionPatch, Ports, find_node, find_nodeclaim, publish_event_on
from activities.runtime import map_faults
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.facts import NodeFact
from tenure.model.node_health import RebootEnd, RepairRequest


class RebootActivities:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._claims, self._nodes, self._events = ports.claims, ports.nodes, ports.events

    @activity.defn
    @map_faults
    async def observe_reboot(self, request: RepairRequest) -> bool:
        """Remove the taint of a node that reports another boot ID. Returns true."""
        await self._nodes.unmark_rebooting(request.node_name)
        message = f"{request.condition}: the instance rebooted, boot ID changed"
        await publish_event_on(self._events, "NodeClaim", request, "RebootObserved", message)
        return True

    @activity.defn
    @map_faults
    async def end_reboot(self, end: RebootEnd) -> bool:
        """Remove the taint, and set Rebooting to False. A cancelled reboot leaves no condition. Returns true.

        An instance that did not reboot is as initialized as before.
        """
        request = end.repair
        claim = await find_nodeclaim(self._claims, request.name, request.uid)
        node = await find_node(self._nodes, request.node_name, request.provider_id)
        if node is not None:
            await self._nodes.unmark_rebooting(node.name)
            await withdraw_requests(self._ports, node.name)
        if claim is None or claim.metadata.is_deleting:
            return True
        if node is not None and end.outcome != "succeeded":
            await self._restore_initialized(claim, node, before=request.reboot.boot_id if request.reboot else "")
        await self._claims.patch(claim.name, claim.uid, conditions=(_ended_condition(end),), now=utc_now())
        await self._claims.patch_annotations(claim.name, {labels.REBOOT_PRE_BOOT_ID: None}, uid=claim.uid)
        if end.outcome == "failed":
            await publish_event_on(self._events, "NodeClaim", claim, labels.REBOOT_FAILED, end.why)
        return True

    async def _restore_initialized(self, claim: NodeClaim, node: NodeFact, *, before: str) -> None:
        condition = claim.condition(labels.INITIALIZED_CONDITION)
        if condition is not None and condition.reason == labels.REBOOTING and node.boot_id == before:
            await self._nodes.mark_initialized(node.name)
            initialized = ConditionPatch(type=labels.INITIALIZED_CONDITION, status="True")
            await self._claims.patch(claim.name, claim.uid, conditions=(initialized,), now=utc_now())


def _ended_condition(end: RebootEnd) -> ConditionPatch:
    if end.outcome == "cancelled":
        return ConditionPatch(type=labels.REBOOTING, status="")
    reason = labels.REBOOT_SUCCEEDED if end.outcome == "succeeded" else labels.REBOOT_FAILED
    return rebooting_condition(reason, end.why, status="False")
