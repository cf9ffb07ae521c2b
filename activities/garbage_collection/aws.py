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

from activities.garbage_collection.base import GARBAGE, UNREADABLE, Lists, Tally, why
from activities.ports.core import Claims, Events, Instances
from activities.ports.garbage_collection import Inventory, LaunchGroups, Leftovers
from activities.runtime import faults_mapped, heartbeating
from tenure.apis import labels
from tenure.model.errors import Fault, Forbidden
from tenure.model.garbage_collection import ClaimMark, NodeMark, ProfileMark, TemplateMark, UpkeepAsked, UpkeepDone
from tenure.model.provider_results import InstanceFacts
from tenure.policy.garbage_collection import (
    decide_unowned,
    decide_untagged,
    decide_unused_profiles,
    decide_unused_templates,
)


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


TEMPLATE_TAG = "aws:ec2launchtemplate:id"
"""EC2 puts it on every instance that was launched from a template."""


class LaunchUpkeep:
    def __init__(self, *, instances: Instances, inventory: Inventory, leftovers: Leftovers) -> None:
        self._instances, self._inventory, self._leftovers = instances, inventory, leftovers

    @activity.defn
    @faults_mapped
    async def collect_launch_templates(self, asked: UpkeepAsked) -> UpkeepDone:
        async with heartbeating():
            tally = Tally(asked)
            templates = await self._leftovers.templates()
            if not templates:
                return tally.done()
            running = {one.tags.get(TEMPLATE_TAG, "") for one in await self._instances.list_managed()}
            claims = await self._inventory.claims()
            tally.looked_at = len(templates)
            unused = decide_unused_templates(templates, claims, running=running, now=datetime.now(UTC))

            async def collect(template: TemplateMark) -> None:
                await self._leftovers.delete_template(template)
                tally.collected("launch template", template.name, pool=template.pool)

            await tally.each("launch template", ((one.name, one) for one in unused), collect)
            return tally.done()

    @activity.defn
    @faults_mapped
    async def collect_profiles(self, asked: UpkeepAsked) -> UpkeepDone:
        async with heartbeating():
            tally = Tally(asked)
            profiles = await self._leftovers.profiles()
            if not profiles:
                return tally.done()
            tally.looked_at = len(profiles)

            async def collect(profile: ProfileMark) -> None:
                await self._leftovers.delete_profile(profile)
                tally.collected("instance profile", profile.name)

            unused = await self._unused(profiles)
            await tally.each("instance profile", ((one.name, one) for one in unused), collect)
            return tally.done()

    async def _unused(self, profiles: Sequence[ProfileMark]) -> Sequence[ProfileMark]:
        """Classes are read last: one that has just begun to name a profile keeps it."""
        instances: Sequence[InstanceFacts] = await self._instances.list_managed()
        claims = await self._inventory.claims()
        classes = await self._inventory.node_classes()
        running = {one.instance_profile for one in instances}
        return decide_unused_profiles(profiles, claims, classes, running=running, now=datetime.now(UTC))


PATIENCE = 240.0
"""Seconds after which a run leaves the rest to the next."""
GIVE_UP = 5
"""Refusals one after the other: it is not these instances that may not be tagged, it is this worker."""


class TagUpkeep:
    def __init__(
        self, *, claims: Claims, instances: Instances, lists: Lists, leftovers: Leftovers, events: Events
    ) -> None:
        self._claims, self._instances, self._lists = claims, instances, lists
        self._leftovers, self._events = leftovers, events

    @activity.defn
    @faults_mapped
    async def tag_instances(self, asked: UpkeepAsked) -> UpkeepDone:
        async with heartbeating():
            tally = Tally(asked)
            untagged = decide_untagged(await self._lists.claims.lately())
            random.shuffle(untagged)
            tally.looked_at = len(untagged)
            until, refused = time.monotonic() + PATIENCE, 0
            for claim in untagged:
                if time.monotonic() > until or refused >= GIVE_UP:
                    break
                try:
                    await self._tag(claim, asked.cluster, tally)
                    refused = 0
                except UNREADABLE as error:
                    refused = refused + 1 if isinstance(error, Forbidden) else 0
                    tally.failed("tags", claim.instance_id, why(error))
                    await self._say(claim, why(error))
            return tally.done()

    async def _tag(self, claim: ClaimMark, cluster: str, tally: Tally) -> None:
        """Only keys that are not there: what a person wrote stays. The NodeClaim remembers that it was done."""
        instance = await self._instances.get(claim.instance_id)
        if instance is None:
            return
        wanted = {
            labels.TAG_NAME: claim.node_name,
            labels.TAG_NODECLAIM: claim.name,
            labels.TAG_EKS_CLUSTER_NAME: cluster,
        }
        absent = {key: value for key, value in wanted.items() if key not in instance.tags}
        if absent:
            await self._leftovers.tag(claim.instance_id, absent)
            tally.collected("tags", claim.instance_id, keys=sorted(absent))
        done = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
        await self._claims.patch(claim.name, claim.uid, annotations=done, now=datetime.now(UTC))

    async def _say(self, claim: ClaimMark, reason: str) -> None:
        message = f"instance {claim.instance_id} could not be tagged: {reason}"
        await self._events.publish(
            kind="NodeClaim", name=claim.name, uid=claim.uid, reason="TaggingFailed", message=message, warning=True
        )
