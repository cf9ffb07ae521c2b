"""Orphaned NodeClaims, Nodes and Leases.

A NodeClaim workflow checks its own instance; these tasks find the objects that no workflow handles. Before a NodeClaim
is deleted because its instance is not listed, two runs read the instance by ID from EC2.
"""

from collections.abc import Sequence

from activities.garbage_collection.base import GARBAGE_COLLECTED, CollectionStats, SharedLists
from activities.ports.core import Ports, publish_event_on
from tenure.clock import utc_now
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
    decide_ownerless_nodeclaims,
    decide_speaks_for,
    is_orphaned_lease,
)


class KubernetesCollector:
    def __init__(self, ports: Ports, lists: SharedLists) -> None:
        self._claims, self._instances, self._inventory = ports.claims, ports.instances, ports.inventory
        self._events, self._lists = ports.events, lists

    async def collect_nodeclaims(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Delete NodeClaims without an instance; their workflows terminate them. A NodeClaim is deleted only in the
        second run, since its workflow may be handling it. NodeClaims without an owner get their NodePool as owner."""
        stats = CollectionStats(request)
        claims = await self._lists.claims.read_cached()
        listed = await self._lists.instances.read_cached()
        stats.examined = len(claims)
        orphaned = decide_orphaned_nodeclaims(claims, listed, now=utc_now())
        nodes = await self._inventory.list_nodes() if orphaned else ()

        async def collect(claim: InventoryNodeClaim) -> None:
            if _has_live_node(claim, nodes) or await self._is_running(claim.instance_id):
                return
            if claim.uid not in request.suspects:
                stats.suspects.append(claim.uid)
            elif await self._claims.delete(claim.name, claim.uid):
                stats.record_collected("nodeclaim", claim.name, provider_id=claim.provider_id)
                message = f"instance {claim.instance_id} is gone and its Node is not Ready"
                await publish_event_on(self._events, "NodeClaim", claim, GARBAGE_COLLECTED, message)

        await stats.process_each("nodeclaim", orphaned, collect)
        await self._restore_owners(claims, stats)
        return stats.build_result()

    async def _restore_owners(self, claims: Sequence[InventoryNodeClaim], stats: CollectionStats) -> None:
        """Without an owner, a NodeClaim would outlast its NodePool."""
        ownerless = decide_ownerless_nodeclaims(claims)
        pools = await self._inventory.list_nodepool_uids() if ownerless else {}

        async def restore(claim: InventoryNodeClaim) -> None:
            if await self._inventory.set_nodepool_owner(claim, pools[claim.pool]):
                stats.record_collected("nodeclaim-owner", claim.name, nodepool=claim.pool)
                message = f"NodePool {claim.pool} is the owner again; the NodePool had been deleted without its nodes"
                await publish_event_on(self._events, "NodeClaim", claim, "OwnerRestored", message)

        await stats.process_each("nodeclaim-owner", [one for one in ownerless if one.pool in pools], restore)

    async def collect_nodes(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Delete Nodes whose finalizer no workflow would remove."""
        stats = CollectionStats(request)
        nodes = await self._inventory.list_nodes()
        claims = await self._lists.claims.read_fresh()
        stats.examined = len(nodes)

        async def collect(node: InventoryNode) -> None:
            if not await self._is_running(node.instance_id) and await self._inventory.delete_node(node):
                stats.record_collected("node", node.name, instance=node.instance_id)

        await stats.process_each("node", decide_orphaned_nodes(nodes, claims, now=utc_now()), collect)
        return stats.build_result()

    async def collect_leases(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Delete Leases in kube-node-lease that remain after their Node, since they have no owner. Leases are listed
        before Nodes, so the Lease of a Node that joins in between is kept. Each is read again before its deletion."""
        stats = CollectionStats(request)
        leases = await self._inventory.list_leases()
        nodes = await self._inventory.list_nodes()
        names, uids = {node.name for node in nodes}, {node.uid for node in nodes}
        now = utc_now()
        orphaned = [one for one in leases if is_orphaned_lease(one, names=names, uids=uids, now=now)]
        stats.examined = len(leases)

        async def collect(lease: InventoryLease) -> None:
            if await self._is_still_orphaned(lease) and await self._inventory.delete_lease(lease):
                stats.record_collected("lease", lease.name)

        await stats.process_each("lease", orphaned, collect)
        return stats.build_result()

    async def _is_running(self, instance_id: str) -> bool:
        """Live read from EC2. False for an ID that is not an instance ID."""
        if not instance_id.startswith("i-"):
            return False
        found = await self._instances.get(instance_id)
        return found is not None and found.state not in TERMINATING_STATES

    async def _is_still_orphaned(self, lease: InventoryLease) -> bool:
        fresh = await self._inventory.node_lease(lease.name)
        return fresh == lease and await self._inventory.get_node(lease.name) is None


def _has_live_node(claim: InventoryNodeClaim, nodes: Sequence[InventoryNode]) -> bool:
    now = utc_now()
    return any(decide_speaks_for(one, claim, now=now) for one in nodes)
