"""What launches leave in AWS: launch templates and instance profiles that nobody uses any more.

Both are made again when a launch wants them, so that taking one too many costs a call and no node.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio import activity

from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from activities.ports import Instances
from activities.upkeep import Tally
from activities.upkeep_ports import Inventory, Leftovers
from model.outcomes import InstanceFacts
from model.upkeep import ProfileMark, TemplateMark, UpkeepAsked, UpkeepDone
from policy.upkeep import decide_unused_profiles, decide_unused_templates

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
