"""Orphaned instances, unused launch templates and instance profiles, and name tags of registered instances.

A launch recreates templates and profiles that it needs, so a wrong deletion costs only a call.
"""

import asyncio
import random
import time
from collections.abc import Sequence, Set

from activities.garbage_collection.base import (
    GARBAGE_COLLECTED,
    UNREADABLE,
    CollectionStats,
    SharedLists,
    describe_error,
)
from activities.ports.core import Ports, publish_event_on
from tenure.apis import labels
from tenure.clock import utc_now
from tenure.model.errors import Fault, Forbidden
from tenure.model.garbage_collection import (
    GarbageCollectionRequest,
    GarbageCollectionResult,
    InventoryInstanceProfile,
    InventoryLaunchTemplate,
    InventoryNodeClaim,
)
from tenure.model.provider_results import InstanceFacts
from tenure.policy.garbage_collection import (
    decide_orphaned_instances,
    decide_untagged,
    decide_unused_profiles,
    decide_unused_templates,
)

TEMPLATE_TAG = "aws:ec2launchtemplate:id"
"""EC2 sets this tag on every instance that is launched from a template."""
MAX_RUN_SECONDS = 100.0
"""After this time, the next run tags the other instances. All tasks of a sweep wait for the slowest."""
CONCURRENT_TAGGINGS = 8
MAX_CONSECUTIVE_DENIALS = 5
"""After this many consecutive denials, the worker probably lacks the permission, so the run ends."""


class AwsCollector:
    def __init__(self, ports: Ports, lists: SharedLists) -> None:
        self._claims, self._instances, self._inventory = ports.claims, ports.instances, ports.inventory
        self._orphaned_resources, self._events = ports.orphaned_resources, ports.events
        self._workflows, self._lists = ports.workflows, lists

    async def terminate_orphaned_instances(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Instances are listed before NodeClaims, so an instance is kept if its NodeClaim is created in between.

        Instances of open launch groups are kept, and each instance is read again before its termination.
        """
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
            pool = fresh.tags.get(labels.TAG_NODEPOOL, "")
            if await self._instances.terminate(fresh.instance_id):
                stats.record_collected("instance", fresh.instance_id, group=_launch_group(fresh), pool=pool)
                await self._publish_terminated(fresh, pool)
            for node in (one for one in nodes if one.instance_id == fresh.instance_id):
                if await self._inventory.delete_node(node):
                    stats.record_collected("node", node.name, instance=node.instance_id)

        await stats.process_each("instance", orphaned, terminate, lambda one: one.instance_id)
        return stats.build_result()

    async def _without_open_groups(
        self, orphaned: Sequence[InstanceFacts], stats: CollectionStats
    ) -> Sequence[InstanceFacts]:
        """The instances without an open launch group. If the open groups cannot be read, those without any group."""
        bought = {_launch_group(one) for one in orphaned} - {""}
        if not bought:
            return orphaned
        still_open: Set[str] = bought
        try:
            still_open = await self._workflows.find_open_groups(bought)
        except Fault as fault:
            stats.record_failed("launch group", ", ".join(sorted(bought)), fault.message)
        return [one for one in orphaned if _launch_group(one) not in still_open]

    async def _publish_terminated(self, instance: InstanceFacts, pool: str) -> None:
        """Publish the event on the NodePool, since no other object exists."""
        message = f"instance {instance.instance_id} ({instance.instance_type} in {instance.zone}) had no NodeClaim"
        if pool:
            await self._events.publish(
                kind="NodePool", name=pool, uid="", reason=GARBAGE_COLLECTED, message=message, warning=False
            )

    async def collect_launch_templates(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        stats = CollectionStats(request)
        templates = await self._orphaned_resources.list_launch_templates()
        if not templates:
            return stats.build_result()
        running = {one.tags.get(TEMPLATE_TAG, "") for one in await self._instances.list_managed()}
        claims = await self._inventory.list_nodeclaims()
        stats.examined = len(templates)

        async def collect(template: InventoryLaunchTemplate) -> None:
            await self._orphaned_resources.delete_template(template)
            stats.record_collected("launch template", template.name, pool=template.pool)

        unused = decide_unused_templates(templates, claims, running=running, now=utc_now())
        await stats.process_each("launch template", unused, collect)
        return stats.build_result()

    async def collect_instance_profiles(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """EC2NodeClasses are read last, so a profile is kept if one has just started to use it."""
        stats = CollectionStats(request)
        profiles = await self._orphaned_resources.list_instance_profiles()
        if not profiles:
            return stats.build_result()
        stats.examined = len(profiles)
        running = {one.instance_profile for one in await self._instances.list_managed()}
        claims = await self._inventory.list_nodeclaims()
        classes = await self._inventory.node_classes()

        async def collect(profile: InventoryInstanceProfile) -> None:
            await self._orphaned_resources.delete_profile(profile)
            stats.record_collected("instance profile", profile.name)

        unused = decide_unused_profiles(profiles, claims, classes, running=running, now=utc_now())
        await stats.process_each("instance profile", unused, collect)
        return stats.build_result()

    async def tag_instances(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        """Few instances are tagged at the same time, so that hundreds of them delay no launch.

        The order is random, so that an instance whose tagging is denied does not block the others.
        """
        stats = CollectionStats(request)
        untagged = decide_untagged(await self._lists.claims.read_cached())
        random.shuffle(untagged)
        stats.examined = len(untagged)
        until, remaining, consecutive_denials = time.monotonic() + MAX_RUN_SECONDS, iter(untagged), 0

        async def tag_remaining() -> None:
            nonlocal consecutive_denials
            for claim in remaining:
                if time.monotonic() > until or consecutive_denials >= MAX_CONSECUTIVE_DENIALS:
                    return
                is_denied = await self._try_tagging(claim, request.cluster, stats)
                consecutive_denials = consecutive_denials + 1 if is_denied else 0

        await asyncio.gather(*(tag_remaining() for _ in range(CONCURRENT_TAGGINGS)))
        return stats.build_result()

    async def _try_tagging(self, claim: InventoryNodeClaim, cluster: str, stats: CollectionStats) -> bool:
        """Whether EC2 denied it. A fault is recorded and published."""
        try:
            await self._tag_instance(claim, cluster, stats)
        except UNREADABLE as error:
            reason = describe_error(error)
            stats.record_failed("tags", claim.instance_id, reason)
            message = f"instance {claim.instance_id} could not be tagged: {reason}"
            await publish_event_on(self._events, "NodeClaim", claim, "TaggingFailed", message)
            return isinstance(error, Forbidden)
        return False

    async def _tag_instance(self, claim: InventoryNodeClaim, cluster: str, stats: CollectionStats) -> None:
        """Add only missing tags, since users may have set others. An annotation of the NodeClaim records the
        success."""
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
        await self._claims.patch(claim.name, claim.uid, annotations=annotations, now=utc_now())


def _find_orphaned(
    request: GarbageCollectionRequest, instances: Sequence[InstanceFacts], claims: Sequence[InventoryNodeClaim]
) -> list[InstanceFacts]:
    return decide_orphaned_instances(instances, claims, cluster=request.cluster, now=utc_now())


def _launch_group(instance: InstanceFacts) -> str:
    return instance.tags.get(labels.LAUNCH_GROUP, "")
