"""Recovery of a NodeClaim's state before a launch, since Temporal's database may have been lost.

The NodeClaim's status has priority. Otherwise, an instance that is tagged with the NodeClaim's name is read from EC2
and written to the status.
"""

from temporalio import activity

from activities.node_conditions import MAINTENANCE_CLEARED, MAINTENANCE_TYPES, set_node_conditions
from activities.nodeclaim.eviction import return_to_service, withdraw_requests
from activities.nodeclaim.instance_assignment import launched_from_status, write_launched
from activities.nodeclaim.repair import rebooting_condition
from activities.ports.core import LaunchFacts, Ports, find_node, find_nodeclaim
from activities.runtime import map_faults
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.errors import TryLater
from tenure.model.facts import NodeFact
from tenure.model.launch import FleetInstance, FleetResult, LaunchedInstance
from tenure.model.node_health import parse_intervals
from tenure.model.nodeclaim.requests import NodeClaimRef, RecoveredState
from tenure.model.provider_results import InstanceFacts


class RecoveryActivities:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._claims, self._nodes, self._node_classes = ports.claims, ports.nodes, ports.node_classes
        self._fleet, self._instances = ports.fleet, ports.instances

    @activity.defn
    @map_faults
    async def recover_state(self, ref: NodeClaimRef) -> RecoveredState:
        """The recovered state; empty if the NodeClaim never had an instance."""
        claim = await find_nodeclaim(self._claims, ref.name, ref.uid)
        if claim is None:
            return RecoveredState()
        launched = _launched_if_any(claim) or await self._launched_from_tags(claim)
        if launched is None:
            return RecoveredState()
        node = (
            await find_node(self._nodes, claim.status.node_name, claim.status.provider_id)
            if claim.is_true(labels.REGISTERED_CONDITION)
            else None
        )
        await self._restore_schedulable(claim, node)
        if node and any(one.type in MAINTENANCE_TYPES for one in node.conditions):
            # The recovered workflow sets those that still apply.
            await set_node_conditions(self._nodes, node.name, MAINTENANCE_CLEARED)
        return RecoveredState(
            launched=launched,
            node_name=node.name if node else claim.status.node_name,
            registered=claim.is_true(labels.REGISTERED_CONDITION),
            initialized=claim.is_true(labels.INITIALIZED_CONDITION),
            boot_id=node.boot_id if node else "",
            expires=claim.expires_at,
            reported_attention=_reported_attention(claim),
            not_ready_intervals=parse_intervals(claim.metadata.annotations.get(labels.NOT_READY_INTERVALS, "")),
            interruptions=claim.metadata.annotations.get(labels.INTERRUPTIONS, ""),
            lifetime=claim.spec.expire_after_delta,
            **_drift_fields(claim),
        )

    @activity.defn
    @map_faults
    async def nodeclaim_exists(self, ref: NodeClaimRef) -> bool:
        """Whether the NodeClaim with this UID exists, including one that is being deleted."""
        return await find_nodeclaim(self._claims, ref.name, ref.uid) is not None

    async def _restore_schedulable(self, claim: NodeClaim, node: NodeFact | None) -> None:
        """Make a node schedulable again whose drain was interrupted. Its disruption and repair are decided again from
        the start."""
        if claim.metadata.is_deleting:
            return
        if labels.REPAIR_DUE in claim.metadata.annotations:
            await self._claims.patch_annotations(claim.name, {labels.REPAIR_DUE: None}, uid=claim.uid)
        if claim.is_true(labels.REBOOTING):
            await self._end_lost_reboot(claim, node)
        if node is None:
            return
        if not (node.being_disrupted or claim.is_true(labels.DISRUPTION_REASON)):
            return
        await return_to_service(self._ports, claim.name, claim.uid, node.name)

    async def _end_lost_reboot(self, claim: NodeClaim, node: NodeFact | None) -> None:
        """The condition comes last, so that a retry repeats all steps."""
        if node is not None:
            await self._nodes.unmark_rebooting(node.name)
            await withdraw_requests(self._ports, node.name)
        await self._claims.patch_annotations(claim.name, {labels.REBOOT_PRE_BOOT_ID: None}, uid=claim.uid)
        ended = rebooting_condition(labels.REBOOT_FAILED, "its workflow was lost", status="False")
        await self._claims.patch(claim.name, claim.uid, conditions=(ended,), now=utc_now())

    async def _launched_from_tags(self, claim: NodeClaim) -> LaunchedInstance | None:
        """The instance of an individual launch, which is tagged with the NodeClaim's name, if its result was lost."""
        found = [one for one in await self._instances.find_by_nodeclaim(claim.name) if _is_younger(one, claim)]
        if not found:
            return None
        instance = min(found, key=lambda one: one.instance_id)
        facts = await self._describe_instance(instance, claim)
        updated = await write_launched(self._claims, claim.metadata.name, claim.metadata.uid, facts, now=utc_now())
        return _launched_if_any(updated) if updated else None

    async def _describe_instance(self, instance: InstanceFacts, claim: NodeClaim) -> LaunchFacts:
        name = claim.spec.node_class_ref.name
        node_class = await self._node_classes.get(name)
        if node_class is None:
            raise TryLater(f"EC2NodeClass {name} does not exist, and {instance.instance_id} runs for {claim.name}")
        fleet_result = FleetResult(
            instances=(
                FleetInstance(
                    instance_id=instance.instance_id,
                    instance_type=instance.instance_type,
                    zone=instance.zone,
                    subnet_id="",
                    image_id=instance.image_id,
                    capacity_type=instance.capacity_type,
                    reservation_id=instance.reservation_id,
                    market=instance.market,
                    placement_group=instance.placement_group,
                    partition=instance.partition,
                    instance_profile=instance.instance_profile,
                ),
            )
        )
        return (await self._fleet.describe(fleet_result, node_class, claim))[0]


def _is_younger(instance: InstanceFacts, claim: NodeClaim) -> bool:
    """Whether the instance was launched after the NodeClaim was created, since names can be reused."""
    created_at, launched = claim.metadata.creation_timestamp, instance.launched_at
    return created_at is None or launched is None or launched >= created_at


def _launched_if_any(claim: NodeClaim) -> LaunchedInstance | None:
    return launched_from_status(claim) if claim.status.provider_id else None


def _drift_fields(claim: NodeClaim) -> dict[str, str]:
    condition = claim.condition(labels.DRIFTED)
    return {"drift": condition.reason, "drift_message": condition.message} if condition and condition.is_true else {}


def _reported_attention(claim: NodeClaim) -> str:
    condition = claim.condition(labels.NEEDS_ATTENTION)
    return (condition.message or condition.reason) if condition and condition.is_true else ""
