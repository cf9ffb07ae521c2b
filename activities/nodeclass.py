"""EC2NodeClasses: resolve what they name, show it on their status, and clean up when they go."""

from datetime import UTC, datetime
from typing import Final

from temporalio import activity

from activities.nodeclaim.annotations import restamp_class
from activities.ports.core import Claims, ConditionPatch, Events, NodeClasses, NodeClassResolver, Pools, Resolved
from activities.runtime import faults_mapped, heartbeating
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash
from tenure.model.errors import Fault
from tenure.model.nodeclaim_requests import NodeClassAsked, NodeClassResolved
from tenure.model.rollout import PinAsked, added, pin_in_force, terms_of

USER_DATA: Final = "karpenter_ec2nodeclasses_userdata_bytes"
_TOLD: Final = 300
"""Characters of a message."""
_NAMED: Final = 5
"""NodeClaims that are named in an event."""


class NodeClassActivities:
    def __init__(
        self,
        *,
        node_classes: NodeClasses,
        claims: Claims,
        pools: Pools,
        resolver: NodeClassResolver,
        events: Events,
    ) -> None:
        self._node_classes, self._claims, self._pools = node_classes, claims, pools
        self._resolver, self._events = resolver, events

    @activity.defn
    @faults_mapped
    async def resolve_node_class(self, asked: NodeClassAsked) -> NodeClassResolved:
        """Finalizer first, since resolving may make an instance profile."""
        async with heartbeating():
            return await self._resolve(asked)

    async def _resolve(self, asked: NodeClassAsked) -> NodeClassResolved:
        node_class = await self._node_classes.get(asked.name)
        if node_class is None:
            return NodeClassResolved(exists=False)
        if node_class.metadata.deleting:
            return NodeClassResolved(generation=node_class.metadata.generation)
        await self._node_classes.ensure_finalizer(asked.name)
        pools = [one for one in await self._pools.list() if one.spec.template.spec.node_class_ref.name == asked.name]
        resolved = await self._resolver.resolve(node_class, pools)
        await self._node_classes.patch_status(
            asked.name,
            status=resolved.status,
            conditions=resolved.conditions,
            annotations=await self._stamps(node_class, resolved.ca_bundle, asked),
            now=datetime.now(UTC),
        )
        await self._tell(node_class, resolved)
        if resolved.user_data_bytes:
            gauge = activity.metric_meter().create_gauge(USER_DATA, "Bytes of user data, of 16384 that EC2 takes")
            gauge.set(resolved.user_data_bytes, {"nodeclass": asked.name})
        return _answer(node_class, resolved)

    @activity.defn
    @faults_mapped
    async def remove_node_class(self, asked: NodeClassAsked) -> bool:
        """Clean up and take the finalizer off, unless a NodeClaim still holds the class. True when it is done."""
        async with heartbeating():
            return await self._remove(asked)

    async def _remove(self, asked: NodeClassAsked) -> bool:
        node_class = await self._node_classes.get(asked.name)
        if node_class is None:
            return True
        if not node_class.metadata.deleting or await self._is_held(node_class):
            return False
        try:
            await self._resolver.clean_up(node_class)
        except Fault as fault:
            await self._say(node_class, labels.CLEAN_UP_FAILED, f"kept until its clean-up succeeds: {fault.message}")
            raise
        await self._node_classes.release(asked.name)
        return True

    @activity.defn
    @faults_mapped
    async def pin_images(self, asked: PinAsked) -> bool:
        """Take images again instead of others, and resolve the class at once. False when it is gone or going."""
        async with heartbeating():
            node_class = await self._node_classes.get(asked.node_class)
            if node_class is None or node_class.metadata.deleting:
                return False
            await self._pin(node_class, asked)
            await self._resolve(NodeClassAsked(name=asked.node_class))
            return True

    async def _pin(self, node_class: EC2NodeClass, asked: PinAsked) -> None:
        """Said again, nothing is written."""
        now = datetime.now(UTC)
        known = pin_in_force(node_class, now)
        if known is not None and known.images.items() >= asked.images.items():
            return
        said = {"terms": terms_of(node_class), "by": asked.by, "reason": asked.why}
        pin = added(known, asked.images, **said, since=now, until=now + asked.lasts)
        written = {labels.IMAGE_PIN: pin.model_dump_json()}
        await self._node_classes.patch_status(asked.node_class, annotations=written, now=now)
        images = ", ".join(f"{good} instead of {bad}" for bad, good in sorted(asked.images.items()))
        await self._say(node_class, labels.ROLLED_BACK, f"{images}, by {asked.by}: {asked.why}")

    async def _stamps(
        self, node_class: EC2NodeClass, ca_bundle: str | None, asked: NodeClassAsked
    ) -> dict[str, str] | None:
        """What the class is to be stamped with; its NodeClaims are brought up to date first. None leaves all as is."""
        if ca_bundle is None:
            return None
        stamp = nodeclass_hash(node_class, ca_bundle=ca_bundle)
        await restamp_class(self._claims, node_class, stamp, told=asked.restamp)
        return {labels.NODECLASS_HASH: stamp, labels.NODECLASS_HASH_VERSION: HASH_VERSION}

    async def _is_held(self, node_class: EC2NodeClass) -> bool:
        """By the reference in the spec, not by a label that anyone may change."""
        name = node_class.metadata.name
        holders = [claim.name for claim in await self._claims.list() if claim.spec.node_class_ref.name == name]
        if holders:
            named = ", ".join(sorted(holders)[:_NAMED]) + (", ..." if len(holders) > _NAMED else "")
            told = f"waits until its {len(holders)} NodeClaims are gone: {named}"
            await self._say(node_class, labels.WAITING_ON_NODECLAIM_TERMINATION, told, warning=False)
        return bool(holders)

    async def _tell(self, node_class: EC2NodeClass, resolved: Resolved) -> None:
        """What no turn of a condition tells: another reason for False, what was not answered, and warnings."""
        for one in resolved.conditions:
            if _says_otherwise(node_class, one):
                await self._say(node_class, one.reason, f"{one.type}: {one.message}")
        if resolved.unanswered:
            await self._say(node_class, labels.AWS_NOT_ANSWERING, "; ".join(resolved.unanswered))
        for reason, message in resolved.warnings:
            await self._say(node_class, reason, message)

    async def _say(self, node_class: EC2NodeClass, reason: str, message: str, *, warning: bool = True) -> None:
        await self._events.publish(
            kind=node_class.kind,
            name=node_class.metadata.name,
            uid=node_class.metadata.uid,
            reason=reason,
            message=message,
            warning=warning,
        )


def _says_otherwise(node_class: EC2NodeClass, new: ConditionPatch) -> bool:
    """False as before, for another reason."""
    old = node_class.condition(new.type)
    return old is not None and old.status == new.status == "False" and old.reason != new.reason


def _answer(node_class: EC2NodeClass, resolved: Resolved) -> NodeClassResolved:
    counted = [one for one in resolved.conditions if one.type in labels.NODECLASS_CONDITIONS]
    bad = [one for one in counted if one.status != "True"]
    missing = len(counted) < len(labels.NODECLASS_CONDITIONS) and resolved.unanswered
    said = "; ".join(f"{one.type}: {one.reason} {one.message}".strip() for one in bad)
    return NodeClassResolved(
        generation=node_class.metadata.generation,
        ready="False" if bad else "Unknown" if missing else "True",
        message=(said or "; ".join(resolved.unanswered))[:_TOLD],
        unanswered="; ".join(resolved.unanswered)[:_TOLD],
        again_in=resolved.again_in,
    )
