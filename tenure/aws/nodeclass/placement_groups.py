"""The placement group that an EC2NodeClass selects for its instances."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from cachetools import TTLCache

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.model.base import Value
from tenure.model.errors import NotFound, Throttled, TryLater
from tenure.model.instance_types import Offering

_FRESH_SECONDS: Final = 60.0
_LAST_SECONDS: Final = 24 * 3600.0
_AVAILABLE: Final[list[Any]] = [{"Name": "state", "Values": ["available"]}]


class PlacementGroup(Value):
    id: str
    strategy: str
    """cluster, spread or partition. Instance types may not support all of them."""
    partitions: int = 0
    """Number of partitions; zero for other strategies."""

    def labels(self) -> dict[str, tuple[str, ...]]:
        """Labels of nodes in this group."""
        found = {labels.PLACEMENT_GROUP_ID: (self.id,)}
        return found | ({labels.PLACEMENT_GROUP_PARTITION: self._partition_numbers()} if self.partitions else {})

    def spread_over_partitions(self, offerings: Iterable[Offering]) -> list[Offering]:
        """Repeat each offering for each partition, because partitions have separate capacity."""
        if not self.partitions:
            return list(offerings)
        return [
            one.model_copy(update={"partition": number}) for one in offerings for number in self._partition_numbers()
        ]

    def _partition_numbers(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(1, self.partitions + 1))


class PlacementGroups:
    """Responses are cached for a minute, or up to a day while queries fail. Raises model.faults."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._cache: TTLCache[Hashable, PlacementGroup] = TTLCache(MAX_ENTRIES, _FRESH_SECONDS)
        self._last: TTLCache[Hashable, PlacementGroup] = TTLCache(MAX_ENTRIES, _LAST_SECONDS)

    async def resolve(self, node_class: EC2NodeClass) -> PlacementGroup | None:
        """None if the class selects no group. Raises NotFound if the group does not exist."""
        selector = node_class.spec.placement_group_selector
        if selector is None:
            return None
        query = {"GroupIds": [selector.id]} if selector.id else {"GroupNames": [selector.name]}
        key = (node_class.uid, node_class.metadata.generation)
        return await get_or_load(self._cache, key, lambda: self._find_or_last(key, query, selector.id or selector.name))

    async def _find_or_last(self, key: Hashable, query: Mapping[str, Any], identifier: str) -> PlacementGroup:
        """Find the group. If the query fails, return the last result; if EC2 reports the group missing, forget it."""
        try:
            found = await self._find_group(query, identifier)
        except NotFound:
            self._last.pop(key, None)
            raise
        except (Throttled, TryLater):
            known = self._last.get(key)
            if known is None:
                raise
            return known
        self._last[key] = found
        return found

    async def _find_group(self, query: Mapping[str, Any], identifier: str) -> PlacementGroup:
        response = await self._clients.call(self._clients.ec2.describe_placement_groups, Filters=_AVAILABLE, **query)
        for group in response.get("PlacementGroups", []):
            strategy = group.get("Strategy", "")
            count = group.get("PartitionCount") or 0
            return PlacementGroup(
                id=group.get("GroupId", ""), strategy=strategy, partitions=count if strategy == "partition" else 0
            )
        raise NotFound(f"no available placement group {identifier!r} (spec.placementGroupSelector)")
