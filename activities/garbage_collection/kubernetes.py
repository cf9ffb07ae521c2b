"""NodeClaims and Nodes whose instance is gone, of which nobody else takes notice.

A node that is at work has its own workflow, which looks at EC2 by itself; here are those that slipped through. Of one
whose instance is not in a list EC2 is asked by name, twice, before it goes.

Leases in kube-node-lease whose Node is gone: put away, since nobody else does when a Lease has no owner.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio import activity

from activities.garbage_collection.base import GARBAGE, CollectionStats, SharedLists
from activities.ports.core import Claims, Events, Instances
from activities.ports.garbage_collection import Inventory
from activities.runtime import background_heartbeat, map_faults
from tenure.model.garbage_collection import (
    GarbageCollectionRequest,
    GarbageCollectionResult,
    InventoryLease,
    InventoryNode,
    InventoryNodeClaim,
)
from tenure.policy.garbage_collection import (
    TERMINATING_STATES,
    decide_orphaned_nodeclaims,
    decide_orphaned_nodes,
    decide_speaks_for,
    is_orphaned_lease,
)


class NodeClaimCollector:
    def __init__(
        self, *, claims: Claims, instances: Instances, inventory: Inventory, lists: SharedLists, events: Events
    ) -> None:
        self._claims, self._instances, self._inventory = claims, instances, inventory
        self._lists, self._events = lists, events

    @activity.defn
    @map_faults
    async def collect_nodeclaims(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Deletes the NodeClaim; its workflow does the rest. Only at the second look: that workflow may be at it."""
        async with background_heartbeat():
            stats = CollectionStats(request)
            claims = await self._lists.claims.read_cached()
            listed = await self._lists.instances.read_cached()
            stats.examined = len(claims)
            orphaned = decide_orphaned_nodeclaims(claims, listed, now=datetime.now(UTC))
            nodes = await self._inventory.list_nodes() if orphaned else ()

            async def collect(claim: InventoryNodeClaim) -> None:
                if _has_live_node(claim, nodes) or await self._is_running(claim.instance_id):
                    return
                if claim.uid not in request.suspects:
                    stats.suspects.append(claim.uid)
                elif await self._claims.delete(claim.name, claim.uid):
                    stats.record_collected("nodeclaim", claim.name, provider_id=claim.provider_id)
                    await self._publish_event(claim)

            await stats.process_each("nodeclaim", ((one.name, one) for one in orphaned), collect)
            return stats.build_result()

    @activity.defn
    @map_faults
    async def collect_nodes(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Node objects that stayed behind, held by a finalizer that no workflow would take off any more."""
        async with background_heartbeat():
            stats = CollectionStats(request)
            nodes = await self._inventory.list_nodes()
            claims = await self._lists.claims.read_fresh()
            stats.examined = len(nodes)
            orphaned = decide_orphaned_nodes(nodes, claims, now=datetime.now(UTC))

            async def collect(node: InventoryNode) -> None:
                if not await self._is_running(node.instance_id) and await self._inventory.delete_node(node):
                    stats.record_collected("node", node.name, instance=node.instance_id)

            await stats.process_each("node", ((one.name, one) for one in orphaned), collect)
            return stats.build_result()

    async def _is_running(self, instance_id: str) -> bool:
        """From EC2, now. What is no instance's id names nothing that could run."""
        if not instance_id.startswith("i-"):
            return False
        found = await self._instances.get(instance_id)
        return found is not None and found.state not in TERMINATING_STATES

    async def _publish_event(self, claim: InventoryNodeClaim) -> None:
        message = f"instance {claim.instance_id} is gone and its Node is not Ready"
        await self._events.publish(kind="NodeClaim", name=claim.name, uid=claim.uid, reason=GARBAGE, message=message)


def _has_live_node(claim: InventoryNodeClaim, nodes: Sequence[InventoryNode]) -> bool:
    now = datetime.now(UTC)
    return any(decide_speaks_for(one, claim, now=now) for one in nodes)


class LeaseCollector:
    def __init__(self, *, inventory: Inventory) -> None:
        self._inventory = inventory

    @activity.defn
    @map_faults
    async def collect_leases(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Leases first, Nodes second: a Node that came in between keeps its Lease. Each is read again at last."""
        async with background_heartbeat():
            stats = CollectionStats(request)
            leases = await self._inventory.list_leases()
            nodes = await self._inventory.list_nodes()
            names, uids = {node.name for node in nodes}, {node.uid for node in nodes}
            now = datetime.now(UTC)
            orphaned = [one for one in leases if is_orphaned_lease(one, names=names, uids=uids, now=now)]
            stats.examined = len(leases)

            async def collect(lease: InventoryLease) -> None:
                if await self._is_still_orphaned(lease) and await self._inventory.delete_lease(lease):
                    stats.record_collected("lease", lease.name)

            await stats.process_each("lease", ((one.name, one) for one in orphaned), collect)
            return stats.build_result()

    async def _is_still_orphaned(self, lease: InventoryLease) -> bool:
        """Still the Lease that was judged, and still no Node of its name."""
        fresh = await self._inventory.node_lease(lease.name)
        return fresh == lease and await self._inventory.get_node(lease.name) is None
