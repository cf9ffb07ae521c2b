"""The port `OrphanedResources`: lists and deletes AWS resources that launches created, and tags instances."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tenure.apis import labels
from tenure.aws.client.client import AwsClients
from tenure.aws.instance.launch_templates import NAME_PREFIX, LaunchTemplates
from tenure.aws.nodeclass.instance_profiles import Profiles
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import OWNED, as_dict, as_list, cluster_tag
from tenure.model.errors import NotFound
from tenure.model.garbage_collection import InventoryInstanceProfile, InventoryLaunchTemplate

_PAGE: Final = {"PageSize": 200}


class AwsOrphanedResources:
    """Raises model.faults."""

    def __init__(
        self, clients: AwsClients, settings: AwsSettings, *, templates: LaunchTemplates, profiles: Profiles
    ) -> None:
        self._clients, self._settings = clients, settings
        self._templates, self._profiles = templates, profiles

    async def list_launch_templates(self) -> Sequence[InventoryLaunchTemplate]:
        """Templates with Tenure's name prefix and the tags that the IAM policy requires for their deletion."""
        found = await self._clients.paginate(
            self._clients.ec2.describe_launch_templates,
            "LaunchTemplates",
            self._parse_template,
            Filters=[
                {"Name": f"tag:{cluster_tag(self._settings)}", "Values": [OWNED]},
                {"Name": "tag-key", "Values": [labels.TAG_NODEPOOL]},
                {"Name": "tag-key", "Values": [labels.TAG_NODECLASS]},
            ],
            PaginationConfig=_PAGE,
        )
        return [one for one in found if one.name.startswith(NAME_PREFIX)]

    async def delete_template(self, template: InventoryLaunchTemplate) -> None:
        """Delete a template; a missing one counts as deleted. A launch that still needs it recreates it."""
        with suppress(NotFound):
            await self._clients.call(self._clients.ec2.delete_launch_template, LaunchTemplateId=template.id)
        self._templates.forget([template.name])

    async def list_instance_profiles(self) -> Sequence[InventoryInstanceProfile]:
        if self._settings.isolated_vpc:
            return ()
        prefix = f"/karpenter/{self._settings.region}/{self._settings.cluster_name}/"
        return await self._clients.paginate(
            self._clients.iam.list_instance_profiles, "InstanceProfiles", _parse_profile, PathPrefix=prefix
        )

    async def delete_profile(self, profile: InventoryInstanceProfile) -> None:
        await self._profiles.delete(profile.name, profile.roles)

    async def tag_instance(self, instance_id: str, tags: Mapping[str, str]) -> None:
        await self._clients.call(self._clients.ec2.create_tags, Resources=[instance_id], Tags=as_list(tags))

    def _parse_template(self, raw: Mapping[str, Any]) -> InventoryLaunchTemplate:
        tags = as_dict(raw.get("Tags"))
        return InventoryLaunchTemplate(
            id=raw["LaunchTemplateId"],
            name=raw["LaunchTemplateName"],
            created=raw["CreateTime"],
            pool=tags.get(labels.TAG_NODEPOOL, ""),
            node_class=tags.get(labels.TAG_NODECLASS, ""),
            used_lately=self._templates.used_lately(raw["LaunchTemplateName"]),
        )


def _parse_profile(raw: Mapping[str, Any]) -> InventoryInstanceProfile:
    return InventoryInstanceProfile(
        name=raw["InstanceProfileName"],
        node_class_uid=raw["Path"].rstrip("/").rpartition("/")[2],
        created=raw["CreateDate"],
        roles=tuple(role["RoleName"] for role in raw.get("Roles", ())),
    )
