"""Nodes in capacity reservations: relabeled when their reservation is gone, deleted before a capacity block ends.

Neither happens while the gate ReservedCapacity is off: nodes keep their labels, and do not drift because of the gate.
"""

import asyncio
from collections.abc import Sequence

from activities.garbage_collection.base import CollectionStats
from activities.ports.core import InstanceFacts, Ports, publish_event_on
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.base import instance_id_of
from tenure.model.errors import Fault
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult

ON_DEMAND_LABELS: dict[str, str | None] = {
    labels.CAPACITY_TYPE: labels.ON_DEMAND,
    **dict.fromkeys(labels.RESERVATION_LABELS),
}
"""Labels of a node that continues without its reservation; None removes a label."""
_EXISTING_STATES = ("pending", "running", "stopping", "stopped")


class ReservationCollector:
    def __init__(self, ports: Ports) -> None:
        self._claims, self._nodes, self._instances = ports.claims, ports.nodes, ports.instances
        self._reservations, self._events = ports.reservations, ports.events

    async def sync_capacity_types(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Relabel nodes as on-demand that EC2 no longer has in a reservation, and set partitions that EC2 has chosen.

        One call for all NodeClaims that are labeled reserved or have no partition yet; no call without such NodeClaims.
        """
        stats = CollectionStats(request)
        found = [one for one in await self._list_candidates() if one.status.provider_id]
        stats.examined = len(found)
        facts = await self._describe_instances(found, stats)

        async def sync(claim: NodeClaim) -> None:
            changes = _label_changes(claim, facts.get(claim.uid), reserved=self._reservations.enabled)
            if changes and await self._relabel_nodeclaim(claim, changes):
                stats.record_collected("capacity type" if labels.CAPACITY_TYPE in changes else "partition", claim.name)
                if labels.CAPACITY_TYPE in changes:
                    was = claim.metadata.labels.get(labels.CAPACITY_RESERVATION_ID, "its reservation")
                    message = f"the instance is no longer in {was}: the node is on-demand now"
                    await self._publish(claim, "CapacityReservationLost", message)

        await stats.process_each("nodeclaim", found, sync)
        return stats.build_result()

    async def release_expiring_reservations(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Delete NodeClaims on capacity blocks that end soon, so that their nodes are drained before EC2 terminates
        them.

        The end is always read from EC2, since a block may have been extended.
        """
        stats = CollectionStats(request)
        in_capacity_blocks = await self._list_labelled(labels.CAPACITY_RESERVATION_TYPE, "capacity-block")
        found = [one for one in in_capacity_blocks if not one.metadata.is_deleting]
        stats.examined = len(found)
        ids = {one.metadata.labels.get(labels.CAPACITY_RESERVATION_ID, "") for one in found} - {""}
        ends = await self._reservations.find_ending(ids) if ids else {}

        async def delete_nodeclaim(claim: NodeClaim) -> None:
            block = claim.metadata.labels[labels.CAPACITY_RESERVATION_ID]
            until = ends[block]
            if await self._claims.delete(claim.name, claim.uid):
                stats.record_collected("nodeclaim", claim.name, block_ends=until.isoformat())
                await self._publish(
                    claim, "CapacityBlockEnding", f"Capacity block {block} ends {until:%Y-%m-%d %H:%M} UTC"
                )

        ending = [one for one in found if one.metadata.labels.get(labels.CAPACITY_RESERVATION_ID) in ends]
        await stats.process_each("nodeclaim", ending, delete_nodeclaim)
        return stats.build_result()

    async def _list_candidates(self) -> Sequence[NodeClaim]:
        reserved = await self._list_labelled(labels.CAPACITY_TYPE, labels.RESERVED)
        without_partition = await self._claims.list(labels={labels.PLACEMENT_GROUP_PARTITION: ""})
        return list({one.uid: one for one in (*reserved, *without_partition)}.values())

    async def _list_labelled(self, key: str, value: str) -> Sequence[NodeClaim]:
        return await self._claims.list(labels={key: value}) if self._reservations.enabled else ()

    async def _describe_instances(
        self, claims: Sequence[NodeClaim], stats: CollectionStats
    ) -> dict[str, InstanceFacts]:
        """Instances by UID of their NodeClaim. Concurrent reads share one call. A failed read is recorded and
        omitted."""

        async def describe_instance(claim: NodeClaim) -> InstanceFacts | None:
            try:
                return await self._instances.get(instance_id_of(claim.status.provider_id))
            except Fault as fault:
                stats.record_failed("nodeclaim", claim.name, fault.message)
                return None

        results = await asyncio.gather(*(describe_instance(claim) for claim in claims))
        return {claim.uid: one for claim, one in zip(claims, results, strict=True) if one}

    async def _relabel_nodeclaim(self, claim: NodeClaim, changes: dict[str, str | None]) -> bool:
        """Patch the Node first. After an interruption, the NodeClaim still has the old labels and is found again."""
        node = await self._nodes.get(claim.status.node_name) if claim.status.node_name else None
        if node is not None and node.provider_id == claim.status.provider_id:
            await self._nodes.patch_labels(node.name, node.uid, changes)
        return await self._claims.patch_labels(claim.name, claim.uid, changes)

    async def _publish(self, claim: NodeClaim, reason: str, message: str) -> None:
        await publish_event_on(self._events, "NodeClaim", claim, reason, message)


def _label_changes(claim: NodeClaim, facts: InstanceFacts | None, *, reserved: bool) -> dict[str, str | None]:
    """Label changes for a NodeClaim; empty if its instance does not exist."""
    if facts is None or facts.state not in _EXISTING_STATES:
        return {}
    current, changes = claim.metadata.labels, dict[str, str | None]()
    if reserved and current.get(labels.CAPACITY_TYPE) == labels.RESERVED and facts.capacity_type == labels.ON_DEMAND:
        changes |= ON_DEMAND_LABELS
    if facts.partition and current.get(labels.PLACEMENT_GROUP_PARTITION) == "":
        changes[labels.PLACEMENT_GROUP_PARTITION] = facts.partition
    return changes
