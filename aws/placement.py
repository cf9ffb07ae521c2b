"""The placement group that an EC2NodeClass selects: its instances are launched into it, where EC2 has room."""

from collections.abc import Mapping
from typing import Any, Final

from aws.cache import Expiring
from aws.client import AwsClients
from model.base import Value
from model.faults import NotFound
from model.kinds import EC2NodeClass

_FRESH_SECONDS: Final = 60.0
_AVAILABLE: Final[list[Any]] = [{"Name": "state", "Values": ["available"]}]


class PlacementGroup(Value):
    id: str
    strategy: str
    """cluster, spread or partition: types support some of them only."""


class PlacementGroups:
    """Answers are used again for a minute. Raises model.faults."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._held: Expiring[PlacementGroup] = Expiring(_FRESH_SECONDS)

    async def resolve(self, node_class: EC2NodeClass) -> PlacementGroup | None:
        """None when the class asks for none; NotFound when the one that it asks for is not there."""
        selector = node_class.spec.placement_group_selector
        if selector is None:
            return None
        wanted = {"GroupIds": [selector.id]} if selector.id else {"GroupNames": [selector.name]}
        key = (node_class.uid, node_class.metadata.generation)
        return await self._held.get_or(key, lambda: self._find(wanted, selector.id or selector.name))

    async def _find(self, wanted: Mapping[str, Any], said: str) -> PlacementGroup:
        answer = await self._clients.call(self._clients.ec2.describe_placement_groups, Filters=_AVAILABLE, **wanted)
        for group in answer.get("PlacementGroups", []):
            return PlacementGroup(id=group.get("GroupId", ""), strategy=group.get("Strategy", ""))
        raise NotFound(f"no available placement group is {said!r} (spec.placementGroupSelector)")
