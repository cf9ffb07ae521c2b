"""Leases in kube-node-lease whose Node is gone: put away, since nobody else does when a Lease has no owner."""

from datetime import UTC, datetime

from temporalio import activity

from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from activities.upkeep import Tally
from activities.upkeep_ports import Inventory
from model.upkeep import LeaseMark, UpkeepAsked, UpkeepDone
from policy.upkeep import decide_left_lease


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
