"""Network of instances: moto's subnets and security groups, read in process, and private addresses of our own state."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from moto.ec2.models import ec2_backends

# AWS reserves the first four addresses and the last one of every subnet.
RESERVED = 5
PREFIX_ADDRESSES = 16


@dataclass
class AddressPool:
    cidr: ipaddress.IPv4Network
    used: set[str] = field(default_factory=set)
    fresh: Iterator[int] | None = None
    returned: list[str] = field(default_factory=list)
    withheld: int = 0
    prefix_addresses: int = 0

    def free_count(self) -> int:
        """Number of addresses that can still be taken. `prefix_addresses` are in prefixes, the control API keeps
        `withheld`."""
        return max(0, self.cidr.num_addresses - RESERVED - len(self.used) - self.prefix_addresses - self.withheld)

    def allocate(self) -> str | None:
        """A free address, preferably one that was never used; None if the subnet is full."""
        if self.free_count() <= 0:
            return None
        address = self._next_address()
        self.used.add(address)
        return address

    def give_back(self, address: str) -> None:
        if address in self.used:
            self.used.discard(address)
            self.returned.append(address)

    def restore(self, used: set[str], returned: list[str], prefix_addresses: int) -> None:
        """Restore stored addresses. Used and returned addresses count as used before."""
        self.used, self.returned, self.prefix_addresses = used, returned, prefix_addresses
        touched = [int(ipaddress.IPv4Address(address)) for address in (*used, *returned)]
        first = max(touched, default=int(self.cidr.network_address) + RESERVED - 2) + 1
        self.fresh = iter(range(first, int(self.cidr.broadcast_address)))

    def _next_address(self) -> str:
        if self.fresh is None:
            first = int(self.cidr.network_address)
            self.fresh = iter(range(first + RESERVED - 1, first + self.cidr.num_addresses - 1))
        number = next(self.fresh, None)
        return self.returned.pop(0) if number is None else str(ipaddress.IPv4Address(number))


class Network:
    """Subnets and groups of one account and region. Methods return moto's objects."""

    def __init__(self, account: str, region: str) -> None:
        self._account = account
        self._region = region
        self._address_pools: dict[str, AddressPool] = {}

    @property
    def backend(self) -> Any:
        return ec2_backends[self._account][self._region]

    def forget(self) -> None:
        self._address_pools.clear()

    def snapshot_addresses(self) -> dict[str, tuple[set[str], list[str], int]]:
        """Addresses in use, returned, and in prefixes, by subnet, for a snapshot."""
        return {
            subnet: (pool.used, pool.returned, pool.prefix_addresses) for subnet, pool in self._address_pools.items()
        }

    def subnets(self) -> list[Any]:
        return [subnet for by_id in self.backend.subnets.values() for subnet in by_id.values()]

    def subnet(self, subnet_id: str) -> Any | None:
        return next((by_id[subnet_id] for by_id in self.backend.subnets.values() if subnet_id in by_id), None)

    def default_subnet(self, zone: str | None) -> Any | None:
        for subnet in sorted(self.subnets(), key=lambda s: (s.availability_zone, s.id)):
            if str(subnet.default_for_az).lower() == "true" and zone in (None, subnet.availability_zone):
                return subnet
        return None

    def group(self, group_id: str) -> Any | None:
        return next((by_id[group_id] for by_id in self.backend.groups.values() if group_id in by_id), None)

    def group_named(self, name: str, vpc_id: str) -> Any | None:
        by_id = self.backend.groups.get(vpc_id, {})
        return next((group for group in by_id.values() if group.name == name), None)

    def tags(self, resource_id: str) -> dict[str, str]:
        return dict(self.backend.tags.get(resource_id, {}))

    def address_pool(self, subnet_id: str) -> AddressPool:
        if subnet_id not in self._address_pools:
            subnet = self.subnet(subnet_id)
            cidr = subnet.cidr_block if subnet is not None else "10.255.255.240/28"
            self._address_pools[subnet_id] = AddressPool(ipaddress.IPv4Network(cidr))
        return self._address_pools[subnet_id]
