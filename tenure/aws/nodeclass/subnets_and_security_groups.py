"""Subnets and security groups that an EC2NodeClass selects, and free addresses per subnet."""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from cachetools import TTLCache

from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedSecurityGroup, ResolvedSubnet
from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.aws.tags import tag_filters
from tenure.model.base import Value

_PAGE: Final = {"PaginationConfig": {"PageSize": 500}}
_FREE_BEYOND_SECONDS: Final = 240.0
"""Additional lifetime of free address counts, beyond that of cached subnets, because a class may be checked late."""


class FoundSubnet(Value):
    id: str
    zone: str
    zone_id: str
    free: int
    """Free addresses."""

    def to_resolved(self) -> ResolvedSubnet:
        return ResolvedSubnet(id=self.id, zone=self.zone, zone_id=self.zone_id)


class FreeAddresses:
    """Estimated free addresses per subnet: EC2's count minus later launches."""

    def __init__(self, refresh_seconds: float = 60) -> None:
        self._free: TTLCache[str, int] = TTLCache(MAX_ENTRIES, refresh_seconds + _FREE_BEYOND_SECONDS)

    def record_subnets(self, subnets: Iterable[FoundSubnet]) -> None:
        for subnet in subnets:
            self._free[subnet.id] = subnet.free

    def record_launch(self, subnet_id: str, count: int) -> None:
        free = self._free.get(subnet_id)
        if free is not None:
            self._free[subnet_id] = max(0, free - count)

    def choose_subnets(self, subnets: Sequence[ResolvedSubnet]) -> dict[str, str]:
        """The subnet per zone with the most free addresses, or the first if unknown.

        A subnet that seems full is not left out: only EC2's rejection excludes its zone from plans.
        """
        chosen: dict[str, tuple[int, str]] = {}
        for index, subnet in enumerate(subnets):
            free = self._free.get(subnet.id)
            rank = -index if free is None else free or -len(subnets)
            if subnet.zone not in chosen or rank > chosen[subnet.zone][0]:
                chosen[subnet.zone] = (rank, subnet.id)
        return {zone: subnet_id for zone, (_, subnet_id) in chosen.items()}


class Networks:
    """Results are cached per generation of the class. Raises model.faults."""

    def __init__(
        self,
        clients: AwsClients,
        free: FreeAddresses,
        *,
        subnet_seconds: float = 60,
        group_seconds: float = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients, self._free = clients, free
        self._subnets: TTLCache[Hashable, Sequence[FoundSubnet]] = TTLCache(MAX_ENTRIES, subnet_seconds, clock)
        self._groups: TTLCache[Hashable, Sequence[ResolvedSecurityGroup]] = TTLCache(MAX_ENTRIES, group_seconds, clock)

    async def find_subnets(self, node_class: EC2NodeClass) -> Sequence[FoundSubnet]:
        """The subnets, most free addresses first."""
        return await get_or_load(self._subnets, _cache_key(node_class), lambda: self._find_subnets(node_class))

    async def find_security_groups(self, node_class: EC2NodeClass) -> Sequence[ResolvedSecurityGroup]:
        return await get_or_load(self._groups, _cache_key(node_class), lambda: self._find_groups(node_class))

    async def _find_subnets(self, node_class: EC2NodeClass) -> Sequence[FoundSubnet]:
        terms = node_class.spec.subnet_selector_terms
        queries = _queries({"subnet-id": [t.id for t in terms if t.id]}, [t.tags for t in terms if t.tags and not t.id])
        pages = (
            self._clients.paginate(
                self._clients.ec2.describe_subnets, "Subnets", _parse_subnet, Filters=filters, **_PAGE
            )
            for filters in queries
        )
        found = {subnet.id: subnet for page in await asyncio.gather(*pages) for subnet in page}
        self._free.record_subnets(found.values())
        return sorted(found.values(), key=lambda subnet: (-subnet.free, subnet.id))

    async def _find_groups(self, node_class: EC2NodeClass) -> Sequence[ResolvedSecurityGroup]:
        terms = node_class.spec.security_group_selector_terms
        named = {
            "group-id": [t.id for t in terms if t.id],
            "group-name": [t.name for t in terms if t.name and not t.id],
        }
        queries = _queries(named, [t.tags for t in terms if t.tags and not t.id and not t.name])
        pages = (
            self._clients.paginate(
                self._clients.ec2.describe_security_groups,
                "SecurityGroups",
                _parse_security_group,
                Filters=filters,
                **_PAGE,
            )
            for filters in queries
        )
        found = {group.id: group for page in await asyncio.gather(*pages) for group in page}
        return [found[group_id] for group_id in sorted(found)]


def _queries(named: Mapping[str, list[str]], tags: Sequence[Mapping[str, str]]) -> list[list[Any]]:
    """One query for all IDs, one for all names, and one per set of tags, because terms are ORed."""
    by_name = [[{"Name": name, "Values": sorted(set(values))}] for name, values in named.items() if values]
    return by_name + [tag_filters(one) for one in tags]


def _cache_key(node_class: EC2NodeClass) -> tuple[str, int]:
    return node_class.uid, node_class.metadata.generation


def _parse_subnet(raw: Mapping[str, Any]) -> FoundSubnet:
    return FoundSubnet(
        id=raw["SubnetId"],
        zone=raw["AvailabilityZone"],
        zone_id=raw.get("AvailabilityZoneId", ""),
        free=raw.get("AvailableIpAddressCount", 0),
    )


def _parse_security_group(raw: Mapping[str, Any]) -> ResolvedSecurityGroup:
    return ResolvedSecurityGroup(id=raw["GroupId"], name=raw.get("GroupName", ""))
