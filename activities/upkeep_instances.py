"""Instances that nobody owns: a launch was answered and never written down, or a NodeClaim was taken away by force.

The instances are listed before the NodeClaims, so that one whose NodeClaim comes in between is spared.
"""

from collections.abc import Sequence, Set
from datetime import UTC, datetime

from temporalio import activity

from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from activities.ports import Events, Instances
from activities.upkeep import GARBAGE, Tally
from activities.upkeep_lists import Lists
from activities.upkeep_ports import Inventory, LaunchGroups
from model import labels
from model.faults import Fault
from model.outcomes import InstanceFacts
from model.upkeep import ClaimMark, NodeMark, UpkeepAsked, UpkeepDone
from policy.upkeep import decide_unowned


class InstanceUpkeep:
    def __init__(
        self, *, instances: Instances, inventory: Inventory, lists: Lists, groups: LaunchGroups, events: Events
    ) -> None:
        self._instances, self._inventory, self._lists = instances, inventory, lists
        self._groups, self._events = groups, events

    @activity.defn
    @faults_mapped
    async def end_unowned_instances(self, asked: UpkeepAsked) -> UpkeepDone:
        """Asks the workflows that launch before it ends one that a launch group bought; each is looked at again."""
        async with heartbeating():
            tally = Tally(asked)
            listed = await self._lists.instances.lately()
            claims = await self._lists.claims.anew()
            tally.looked_at = len(listed)
            unowned = await self._free(_unowned(asked, listed, claims), tally)
            nodes = await self._inventory.nodes() if unowned else ()

            async def end(instance: InstanceFacts) -> None:
                fresh = await self._instances.get(instance.instance_id)
                if fresh is None or not _unowned(asked, [fresh], claims):
                    return
                if await self._instances.terminate(fresh.instance_id):
                    tally.collected(
                        "instance", fresh.instance_id, group=_group(fresh), pool=fresh.tags.get(labels.TAG_NODEPOOL)
                    )
                    await self._say(fresh)
                for node in (one for one in nodes if one.instance_id == fresh.instance_id):
                    await self._remove(node, tally)

            await tally.each("instance", ((one.instance_id, one) for one in unowned), end)
            return tally.done()

    async def _free(self, unowned: Sequence[InstanceFacts], tally: Tally) -> Sequence[InstanceFacts]:
        """Those of no launch group that is open; where nobody can tell, those of no group at all."""
        bought = {_group(one) for one in unowned} - {""}
        if not bought:
            return unowned
        still_open: Set[str] = bought
        try:
            still_open = await self._groups.open(bought)
        except Fault as fault:
            tally.failed("launch group", ", ".join(sorted(bought)), fault.message)
        return [one for one in unowned if _group(one) not in still_open]

    async def _remove(self, node: NodeMark, tally: Tally) -> None:
        if await self._inventory.delete_node(node):
            tally.collected("node", node.name, instance=node.instance_id)

    async def _say(self, instance: InstanceFacts) -> None:
        """About the NodePool that bought it: there is no other object to tell it of."""
        pool = instance.tags.get(labels.TAG_NODEPOOL, "")
        message = f"instance {instance.instance_id} ({instance.instance_type} in {instance.zone}) had no NodeClaim"
        if pool:
            await self._events.publish(kind="NodePool", name=pool, uid="", reason=GARBAGE, message=message)


def _unowned(
    asked: UpkeepAsked, instances: Sequence[InstanceFacts], claims: Sequence[ClaimMark]
) -> list[InstanceFacts]:
    return decide_unowned(instances, claims, cluster=asked.cluster, now=datetime.now(UTC))


def _group(instance: InstanceFacts) -> str:
    return instance.tags.get(labels.LAUNCH_GROUP, "")
