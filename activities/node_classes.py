"""EC2NodeClasses: resolve what they name, show it on their status, and clean up when they go."""

from datetime import UTC, datetime

from temporalio import activity

from activities.errors import faults_mapped
from activities.ports import Claims, NodeClasses, NodeClassResolver
from activities.stamps import restamp_class
from model import labels
from model.hashing import HASH_VERSION, nodeclass_hash
from model.kinds import EC2NodeClass
from model.steps import NodeClassAsked, NodeClassResolved


class NodeClassActivities:
    def __init__(self, *, node_classes: NodeClasses, claims: Claims, resolver: NodeClassResolver) -> None:
        self._node_classes, self._claims, self._resolver = node_classes, claims, resolver

    @activity.defn
    @faults_mapped
    async def resolve_node_class(self, asked: NodeClassAsked) -> NodeClassResolved:
        """Finalizer first, since resolving may make an instance profile."""
        node_class = await self._node_classes.get(asked.name)
        if node_class is None:
            return NodeClassResolved(exists=False)
        if node_class.metadata.deleting:
            return NodeClassResolved(generation=node_class.metadata.generation)
        await self._node_classes.ensure_finalizer(asked.name)
        resolved = await self._resolver.resolve(node_class)
        stamp = nodeclass_hash(node_class)
        await restamp_class(self._claims, node_class, stamp, told=asked.restamp)
        await self._node_classes.patch_status(
            asked.name,
            status=resolved.status,
            conditions=resolved.conditions,
            annotations={
                labels.NODECLASS_HASH: stamp,
                labels.NODECLASS_HASH_VERSION: HASH_VERSION,
            },
            now=datetime.now(UTC),
        )
        bad = [one for one in resolved.conditions if one.status not in ("True", "")]
        return NodeClassResolved(
            generation=node_class.metadata.generation,
            ready="False" if bad else "True",
            message="; ".join(f"{one.type}: {one.reason} {one.message}".strip() for one in bad)[:300],
            again_in=resolved.again_in,
        )

    @activity.defn
    @faults_mapped
    async def remove_node_class(self, asked: NodeClassAsked) -> bool:
        """Clean up and take the finalizer off, unless a NodeClaim still holds the class. True when it is done."""
        node_class = await self._node_classes.get(asked.name)
        if node_class is None:
            return True
        if not node_class.metadata.deleting or await self._is_held(node_class):
            return False
        await self._resolver.clean_up(node_class)
        await self._node_classes.release(asked.name)
        return True

    async def _is_held(self, node_class: EC2NodeClass) -> bool:
        """By the reference in the spec, not by a label that anyone may change."""
        claims = await self._claims.list()
        return any(claim.spec.node_class_ref.name == node_class.metadata.name for claim in claims)
