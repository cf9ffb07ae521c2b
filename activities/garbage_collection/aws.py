"""Instances that nobody owns: a launch was answered and never written down, or a NodeClaim was taken away by force.

The instances are listed before the NodeClaims, so that one whose NodeClaim comes in between is spared.

What launches leave in AWS: launch templates and instance profiles that nobody uses any more.

Both are made again when a launch wants them, so that taking one too many costs a call and no node.

Names for instances whose Node has joined: Name, the NodeClaim and the cluster, for whoever looks at EC2's console.

Slow on purpose, and in an order that dice give: a scale-up of hundreds holds up no launch, and an instance that may
not be tagged holds up no other.
"""

import random
import time
from collections.abc import Sequence, Set
from datetime import UTC, datetime

from temporalio import activity

from activities.garbage_collection.base import GARBAGE, UNREADABLE, CollectionStats, SharedLists, describe_error
from activities.ports.core import Claims, Events, Instances
from activities.ports.garbage_collection import Inventory, LaunchGroups, OrphanedResources
from activities.runtime import background_heartbeat, map_faults
from tenure.apis import labels
from tenure.model.errors import Fault, Forbidden
from tenure.model.garbage_collection import (
    GarbageCollectionRequest,
    GarbageCollectionResult,
    InventoryInstanceProfile,
    InventoryLaunchTemplate,
    InventoryNode,
    InventoryNodeClaim,
)
from tenure.model.provider_results import InstanceFacts
from tenure.policy.garbage_collection import (
    decide_orphaned_instances,
    decide_untagged,
    decide_unused_profiles,
    decide_unused_templates,
)


class InstanceCollector:
    def __init__(
        self, *, instances: Instances, inventory: Inventory, lists: SharedLists, groups: LaunchGroups, events: Events
    ) -> None:
        self._instances, self._inventory, self._lists = instances, inventory, lists
        self._groups, self._events = groups, events

    @activity.defn
    @map_faults
    async def terminate_orphaned_instances(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Asks the workflows that launch before it ends one that a launch group bought; each is looked at again."""
        async with background_heartbeat():
            stats = CollectionStats(request)
            listed = await self._lists.instances.read_cached()
            claims = await self._lists.claims.read_fresh()
            stats.examined = len(listed)
            orphaned = await self._without_open_groups(_find_orphaned(request, listed, claims), stats)
            nodes = await self._inventory.list_nodes() if orphaned else ()

            async def terminate(instance: InstanceFacts) -> None:
                fresh = await self._instances.get(instance.instance_id)
                if fresh is None or not _find_orphaned(request, [fresh], claims):
                    return
                if await self._instances.terminate(fresh.instance_id):
                    stats.record_collected(
                        "instance",
                        fresh.instance_id,
                        group=_launch_group(fresh),
                        pool=fresh.tags.get(labels.TAG_NODEPOOL),
                    )
                    await self._publish_event(fresh)
                for node in (one for one in nodes if one.instance_id == fresh.instance_id):
                    await self._delete_node(node, stats)

            await stats.process_each("instance", ((one.instance_id, one) for one in orphaned), terminate)
            return stats.build_result()

    async def _without_open_groups(
        self, orphaned: Sequence[InstanceFacts], stats: CollectionStats
    ) -> Sequence[InstanceFacts]:
        """Those of no launch group that is open; where nobody can tell, those of no group at all."""
        bought = {_launch_group(one) for one in orphaned} - {""}
        if not bought:
            return orphaned
        still_open: Set[str] = bought
        try:
            still_open = await self._groups.find_open(bought)
        except Fault as fault:
            stats.record_failed("launch group", ", ".join(sorted(bought)), fault.message)
        return [one for one in orphaned if _launch_group(one) not in still_open]

    async def _delete_node(self, node: InventoryNode, stats: CollectionStats) -> None:
        if await self._inventory.delete_node(node):
            stats.record_collected("node", node.name, instance=node.instance_id)

    async def _publish_event(self, instance: InstanceFacts) -> None:
        """About the NodePool that bought it: there is no other object to tell it of."""
        pool = instance.tags.get(labels.TAG_NODEPOOL, "")
        message = f"instance {instance.instance_id} ({instance.instance_type} in {instance.zone}) had no NodeClaim"
        if pool:
            await self._events.publish(
                kind="NodePool", name=pool, uid="", reason=GARBAGE, message=message, warning=False
            )


def _find_orphaned(
    request: GarbageCollectionRequest, instances: Sequence[InstanceFacts], claims: Sequence[InventoryNodeClaim]
) -> list[InstanceFacts]:
    return decide_orphaned_instances(instances, claims, cluster=request.cluster, now=datetime.now(UTC))


def _launch_group(instance: InstanceFacts) -> str:
    return instance.tags.get(labels.LAUNCH_GROUP, "")


TEMPLATE_TAG = "aws:ec2launchtemplate:id"
"""EC2 puts it on every instance that was launched from a template."""


class LaunchResourceCollector:
    def __init__(self, *, instances: Instances, inventory: Inventory, orphaned_resources: OrphanedResources) -> None:
        self._instances, self._inventory, self._orphaned_resources = instances, inventory, orphaned_resources

    @activity.defn
    @map_faults
    async def collect_launch_templates(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        async with background_heartbeat():
            stats = CollectionStats(request)
            templates = await self._orphaned_resources.list_launch_templates()
            if not templates:
                return stats.build_result()
            running = {one.tags.get(TEMPLATE_TAG, "") for one in await self._instances.list_managed()}
            claims = await self._inventory.list_nodeclaims()
            stats.examined = len(templates)
            unused = decide_unused_templates(templates, claims, running=running, now=datetime.now(UTC))

            async def collect(template: InventoryLaunchTemplate) -> None:
                await self._orphaned_resources.delete_template(template)
                stats.record_collected("launch template", template.name, pool=template.pool)

            await stats.process_each("launch template", ((one.name, one) for one in unused), collect)
            return stats.build_result()

    @activity.defn
    @map_faults
    async def collect_instance_profiles(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        async with background_heartbeat():
            stats = CollectionStats(request)
            profiles = await self._orphaned_resources.list_instance_profiles()
            if not profiles:
                return stats.build_result()
            stats.examined = len(profiles)

            async def collect(profile: InventoryInstanceProfile) -> None:
                await self._orphaned_resources.delete_profile(profile)
                stats.record_collected("instance profile", profile.name)

            unused = await self._find_unused_profiles(profiles)
            await stats.process_each("instance profile", ((one.name, one) for one in unused), collect)
            return stats.build_result()

    async def _find_unused_profiles(
        self, profiles: Sequence[InventoryInstanceProfile]
    ) -> Sequence[InventoryInstanceProfile]:
        """Classes are read last: one that has just begun to name a profile keeps it."""
        instances: Sequence[InstanceFacts] = await self._instances.list_managed()
        claims = await self._inventory.list_nodeclaims()
        classes = await self._inventory.node_classes()
        running = {one.instance_profile for one in instances}
        return decide_unused_profiles(profiles, claims, classes, running=running, now=datetime.now(UTC))


MAX_RUN_SECONDS = 240.0
"""Seconds after which a run leaves the rest to the next."""
MAX_CONSECUTIVE_DENIALS = 5
"""Refusals one after the other: it is not these instances that may not be tagged, it is this worker."""


class InstanceTagger:
    def __init__(
        self,
        *,
        claims: Claims,
        instances: Instances,
        lists: SharedLists,
        orphaned_resources: OrphanedResources,
        events: Events,
    ) -> None:
        self._claims, self._instances, self._lists = claims, instances, lists
        self._orphaned_resources, self._events = orphaned_resources, events

    @activity.defn
    @map_faults
    async def tag_instances(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        async with background_heartbeat():
            stats = CollectionStats(request)
            untagged = decide_untagged(await self._lists.claims.read_cached())
            random.shuffle(untagged)
            stats.examined = len(untagged)
            until, consecutive_denials = time.monotonic() + MAX_RUN_SECONDS, 0
            for claim in untagged:
                if time.monotonic() > until or consecutive_denials >= MAX_CONSECUTIVE_DENIALS:
                    break
                try:
                    await self._tag_instance(claim, request.cluster, stats)
                    consecutive_denials = 0
                except UNREADABLE as error:
                    consecutive_denials = consecutive_denials + 1 if isinstance(error, Forbidden) else 0
                    stats.record_failed("tags", claim.instance_id, describe_error(error))
                    await self._publish_event(claim, describe_error(error))
            return stats.build_result()

    async def _tag_instance(self, claim: InventoryNodeClaim, cluster: str, stats: CollectionStats) -> None:
        """Only keys that are not there: what a person wrote stays. The NodeClaim remembers that it was done."""
        instance = await self._instances.get(claim.instance_id)
        if instance is None:
            return
        desired = {
            labels.TAG_NAME: claim.node_name,
            labels.TAG_NODECLAIM: claim.name,
            labels.TAG_EKS_CLUSTER_NAME: cluster,
        }
        missing = {key: value for key, value in desired.items() if key not in instance.tags}
        if missing:
            await self._orphaned_resources.tag_instance(claim.instance_id, missing)
            stats.record_collected("tags", claim.instance_id, keys=sorted(missing))
        annotations = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
        await self._claims.patch(claim.name, claim.uid, annotations=annotations, now=datetime.now(UTC))

    async def _publish_event(self, claim: InventoryNodeClaim, reason: str) -> None:
        message = f"instance {claim.instance_id} could not be tagged: {reason}"
        await self._events.publish(
            kind="NodeClaim", name=claim.name, uid=claim.uid, reason="TaggingFailed", message=message
        )
