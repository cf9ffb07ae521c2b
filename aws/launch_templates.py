"""Brings launch templates into EC2 and, with their EC2NodeClass, out of it again.

A template that this process saw lately is taken to be there; one that CreateFleet misses is made again.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from aws.cache import Expiring
from aws.client import AwsClients
from aws.errors import ALREADY_EXISTS
from aws.launch_template_data import LaunchTemplate
from aws.settings import AwsSettings
from aws.tags import as_list, cluster_tag
from model import labels
from model.faults import Conflict, NotFound
from model.kinds import EC2NodeClass

_SEEN_SECONDS: Final = 60.0
_FILTER_VALUES: Final = 200
"""EC2 takes no more values in one filter."""


class LaunchTemplates:
    """Raises model.faults. Templates are only deleted with their class: another worker may be about to use them."""

    def __init__(self, clients: AwsClients, settings: AwsSettings) -> None:
        self._clients, self._settings = clients, settings
        self._there: Expiring[LaunchTemplate] = Expiring(_SEEN_SECONDS, sliding=True)
        self._known: Expiring[LaunchTemplate] = Expiring(_SEEN_SECONDS * 30, limit=512)
        self._turn = asyncio.Lock()

    async def ensure(self, templates: Sequence[LaunchTemplate]) -> None:
        """Make those that are not there."""
        for template in templates:
            self._known.put(template.name, template)
        async with self._turn:
            unsure = {one.name: one for one in templates if self._there.get(one.name) is None}
            if not unsure:
                return
            found = await self._existing(sorted(unsure))
            await asyncio.gather(*(self._create(one) for name, one in unsure.items() if name not in found))
            for name, template in unsure.items():
                self._there.put(name, template)

    def used_lately(self, name: str) -> bool:
        """Whether a launch of this process has asked for it in the last half hour."""
        return self._known.get(name) is not None

    def forget(self, names: Iterable[str]) -> None:
        """EC2 says that they are not there: look before they are used again."""
        for name in names:
            self._there.forget(name)

    async def again(self, names: Sequence[str]) -> bool:
        """Make those again that EC2 misses; False when this process does not know what one of them says."""
        self.forget(names)
        known = [one for name in names if (one := self._known.get(name)) is not None]
        await self.ensure(known)
        return len(known) == len(names)

    async def delete_of(self, node_class: EC2NodeClass) -> None:
        """Delete all that were made for this class in this cluster."""
        found = await self._clients.pages(
            self._clients.ec2.describe_launch_templates,
            "LaunchTemplates",
            lambda one: (str(one["LaunchTemplateId"]), str(one["LaunchTemplateName"])),
            Filters=[
                {"Name": f"tag:{labels.TAG_NODECLASS}", "Values": [node_class.name]},
                {"Name": f"tag:{cluster_tag(self._settings)}", "Values": ["owned"]},
            ],
            PaginationConfig={"PageSize": 200},
        )
        await asyncio.gather(*(self._delete(template_id) for template_id, _ in found))
        for _, name in found:
            self._there.forget(name)

    async def _existing(self, names: Sequence[str]) -> Collection[str]:
        found: list[str] = []
        for start in range(0, len(names), _FILTER_VALUES):
            wanted: list[Any] = [
                {"Name": "launch-template-name", "Values": list(names[start : start + _FILTER_VALUES])}
            ]
            found += await self._clients.pages(
                self._clients.ec2.describe_launch_templates,
                "LaunchTemplates",
                lambda one: str(one["LaunchTemplateName"]),
                Filters=wanted,
                PaginationConfig={"PageSize": 200},
            )
        return frozenset(found)

    async def _create(self, template: LaunchTemplate) -> None:
        request: dict[str, Any] = {
            "LaunchTemplateName": template.name,
            "LaunchTemplateData": template.data,
            "TagSpecifications": [{"ResourceType": "launch-template", "Tags": as_list(template.tags)}],
        }
        try:
            await self._clients.call(self._clients.ec2.create_launch_template, **request)
        except Conflict as fault:
            if fault.code not in ALREADY_EXISTS:
                raise

    async def _delete(self, template_id: str) -> None:
        try:
            await self._clients.call(self._clients.ec2.delete_launch_template, LaunchTemplateId=template_id)
        except NotFound:
            return
