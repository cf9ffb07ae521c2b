"""What the world remembers of a NodeClaim whose workflow is new though the claim is not: before anything is launched.

The launch phase asks where Temporal's store may have been lost. The NodeClaim's own status counts first; an instance
tagged with its name, whose launch was never written down, is found at EC2 and written down now.
"""

from datetime import UTC, datetime

from temporalio import activity

from activities.nodeclaim.instance_assignment import launch_shown, show_launched
from activities.ports.core import (
    Claims,
    ConditionPatch,
    Fleet,
    Instances,
    LaunchFacts,
    Machines,
    NodeClasses,
    Nodes,
    claim_of,
)
from activities.runtime import faults_mapped
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import TryLater
from tenure.model.launch import FleetAnswer, FleetInstance, Launched
from tenure.model.node_health import read
from tenure.model.nodeclaim_requests import ClaimRef, Recalled
from tenure.model.provider_results import InstanceFacts, NodeState


class RecallActivities:
    def __init__(
        self,
        *,
        claims: Claims,
        nodes: Nodes,
        node_classes: NodeClasses,
        fleet: Fleet,
        instances: Instances,
        machines: Machines,
    ) -> None:
        self._claims, self._nodes, self._node_classes = claims, nodes, node_classes
        self._fleet, self._instances, self._machines = fleet, instances, machines

    @activity.defn
    @faults_mapped
    async def recall_life(self, ref: ClaimRef) -> Recalled:
        """How far this NodeClaim's life had come; nothing for one that never had an instance."""
        claim = await claim_of(self._claims, ref.name, ref.uid)
        if claim is None:
            return Recalled()
        launched = _of_status(claim) or await self._of_tags(claim)
        if launched is None:
            return Recalled()
        node = await self._node(claim) if claim.is_true(labels.REGISTERED_CONDITION) else None
        await self._put_back(claim, node)
        return Recalled(
            launched=launched,
            node_name=node.name if node else claim.status.node_name,
            registered=claim.is_true(labels.REGISTERED_CONDITION),
            initialized=claim.is_true(labels.INITIALIZED_CONDITION),
            boot_id=node.boot_id if node else "",
            expires=claim.expires_at,
            told_overdue=_overdue(claim),
            absences=read(claim.metadata.annotations.get(labels.AWAY, "")),
            interruptions=claim.metadata.annotations.get(labels.INTERRUPTIONS, ""),
            lifetime=claim.spec.expire_after_delta,
            **_drift(claim),
        )

    @activity.defn
    @faults_mapped
    async def claim_stands(self, ref: ClaimRef) -> bool:
        """Whether this very NodeClaim is in the API server, be it on its way out."""
        return await claim_of(self._claims, ref.name, ref.uid) is not None

    async def _put_back(self, claim: NodeClaim, node: NodeState | None) -> None:
        """A node that was being drained while its NodeClaim was kept, or was about to go, is in service again: all is
        decided anew."""
        if node is None or claim.metadata.deleting:
            return
        if not (node.being_disrupted or claim.is_true(labels.DISRUPTION_REASON)):
            return
        await self._nodes.unmark_disrupted(node.name)
        cleared = ConditionPatch(type=labels.DISRUPTION_REASON, status="")
        await self._claims.patch(claim.name, claim.uid, conditions=(cleared,), now=datetime.now(UTC))

    async def _of_tags(self, claim: NodeClaim) -> Launched | None:
        """One that launched alone carries the claim's name; its answer was lost with the store."""
        found = [one for one in await self._instances.named(claim.name) if _is_younger(one, claim)]
        if not found:
            return None
        instance = min(found, key=lambda one: one.instance_id)
        facts = await self._facts(instance, claim)
        shown = await show_launched(self._claims, claim.metadata.name, claim.metadata.uid, facts, now=datetime.now(UTC))
        return _of_status(shown) if shown else None

    async def _facts(self, instance: InstanceFacts, claim: NodeClaim) -> LaunchFacts:
        name = claim.spec.node_class_ref.name
        node_class = await self._node_classes.get(name)
        if node_class is None:
            raise TryLater(f"EC2NodeClass {name} is not there, and {instance.instance_id} runs for {claim.name}")
        answer = FleetAnswer(
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
        learnt = await self._machines.learnt()
        return (await self._fleet.describe(answer, node_class, claim, learnt=learnt))[0]

    async def _node(self, claim: NodeClaim) -> NodeState | None:
        node = await self._nodes.get(claim.status.node_name) if claim.status.node_name else None
        return node if node is not None and node.provider_id == claim.status.provider_id else None


def _is_younger(instance: InstanceFacts, claim: NodeClaim) -> bool:
    """A name may have been used before."""
    born, launched = claim.metadata.creation_timestamp, instance.launched_at
    return born is None or launched is None or launched >= born


def _of_status(claim: NodeClaim) -> Launched | None:
    return launch_shown(claim) if claim.status.provider_id else None


def _drift(claim: NodeClaim) -> dict[str, str]:
    told = claim.condition(labels.DRIFTED)
    return {"drift": told.reason, "drift_message": told.message} if told and told.is_true else {}


def _overdue(claim: NodeClaim) -> str:
    told = claim.condition(labels.OVERDUE)
    return told.reason if told and told.is_true else ""
