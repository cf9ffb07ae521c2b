"""NodeClaims and Nodes whose instance is gone, of which nobody else takes notice.

A node that is at work has its own workflow, which looks at EC2 by itself; here are those that slipped through. Of one
whose instance is not in a list EC2 is asked by name, twice, before it goes.

Leases in kube-node-lease whose Node is gone: put away, since nobody else does when a Lease has no owner.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio import activity

from activities.garbage_collection.base import GARBAGE, Lists, Tally
from activities.ports.core import Claims, Events, Instances
from activities.ports.garbage_collection import Inventory
from activities.runtime import faults_mapped, heartbeating
from tenure.model.garbage_collection import ClaimMark, LeaseMark, NodeMark, UpkeepAsked, UpkeepDone
from tenure.policy.garbage_collection import (
    GOING,
    decide_bereft,
    decide_left_lease,
    decide_speaks_for,
    decide_stray_nodes,
)


class ClaimUpkeep:
    def __init__(
        self, *, claims: Claims, instances: Instances, inventory: Inventory, lists: Lists, events: Events
    ) -> None:
        self._claims, self._instances, self._inventory = claims, instances, inventory
        self._lists, self._events = lists, events

    @activity.defn
    @faults_mapped
    async def collect_claims(self, asked: UpkeepAsked) -> UpkeepDone:
        """Deletes the NodeClaim; its workflow does the rest. Only at the second look: that workflow may be at it."""
        async with heartbeating():
            tally = Tally(asked)
            claims = await self._lists.claims.lately()
            listed = await self._lists.instances.lately()
            tally.looked_at = len(claims)
            bereft = decide_bereft(claims, listed, now=datetime.now(UTC))
            nodes = await self._inventory.nodes() if bereft else ()

            async def collect(claim: ClaimMark) -> None:
                if _is_vouched_for(claim, nodes) or await self._runs(claim.instance_id):
                    return
                if claim.uid not in asked.suspects:
                    tally.suspects.append(claim.uid)
                elif await self._claims.delete(claim.name, claim.uid):
                    tally.collected("nodeclaim", claim.name, provider_id=claim.provider_id)
                    await self._say(claim)

            await tally.each("nodeclaim", ((one.name, one) for one in bereft), collect)
            return tally.done()

    @activity.defn
    @faults_mapped
    async def collect_nodes(self, asked: UpkeepAsked) -> UpkeepDone:
        """Node objects that stayed behind, held by a finalizer that no workflow would take off any more."""
        async with heartbeating():
            tally = Tally(asked)
            nodes = await self._inventory.nodes()
            claims = await self._lists.claims.anew()
            tally.looked_at = len(nodes)
            stray = decide_stray_nodes(nodes, claims, now=datetime.now(UTC))

            async def collect(node: NodeMark) -> None:
                if not await self._runs(node.instance_id) and await self._inventory.delete_node(node):
                    tally.collected("node", node.name, instance=node.instance_id)

            await tally.each("node", ((one.name, one) for one in stray), collect)
            return tally.done()

    async def _runs(self, instance_id: str) -> bool:
        """From EC2, now. What is no instance's id names nothing that could run."""
        if not instance_id.startswith("i-"):
            return False
        found = await self._instances.get(instance_id)
        return found is not None and found.state not in GOING

    async def _say(self, claim: ClaimMark) -> None:
        message = f"instance {claim.instance_id} is gone and its Node is not Ready"
        await self._events.publish(
            kind="NodeClaim", name=claim.name, uid=claim.uid, reason=GARBAGE, message=message, warning=True
        )


def _is_vouched_for(claim: ClaimMark, nodes: Sequence[NodeMark]) -> bool:
    now = datetime.now(UTC)
    return any(decide_speaks_for(one, claim, now=now) for one in nodes)


class LeaseUpkeep:
    def __init__(self, *, inventory: Inventory) -> None:
        self._inventory = inventory

    @activity.defn
    @faults_mapped
    async def collect_leases(self, asked: UpkeepAsked) -> UpkeepDone:
        """Leases first, Nodes second: a Node that came in between keeps its Lease. Each is read again at last."""
        async with heartbeating():
            tally = Tally(asked)
            leases = await self._inventory.leases()
            nodes = await self._inventory.nodes()
            names, uids = {node.name for node in nodes}, {node.uid for node in nodes}
            now = datetime.now(UTC)
            left = [one for one in leases if decide_left_lease(one, names=names, uids=uids, now=now)]
            tally.looked_at = len(leases)

            async def collect(lease: LeaseMark) -> None:
                if await self._is_left(lease) and await self._inventory.delete_lease(lease):
                    tally.collected("lease", lease.name)

            await tally.each("lease", ((one.name, one) for one in left), collect)
            return tally.done()

    async def _is_left(self, lease: LeaseMark) -> bool:
        """Still the Lease that was judged, and still no Node of its name."""
        fresh = await self._inventory.node_lease(lease.name)
        return fresh == lease and await self._inventory.node(lease.name) is None
