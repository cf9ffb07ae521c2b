"""What instance types there are, by the catalogue that moto ships: their facts, and in which zones each is offered."""

from __future__ import annotations

from functools import cache
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES


@cache
def all_types() -> dict[str, dict[str, Any]]:
    """Facts by type name, members as DescribeInstanceTypes names them, sorted by name."""
    return {name: INSTANCE_TYPES[name] for name in sorted(INSTANCE_TYPES)}


@cache
def offerings(region: str, location_type: str) -> tuple[tuple[str, str], ...]:
    """(type, location) pairs of a region, sorted; the types that have no facts are left in, as in the real lists."""
    rows = INSTANCE_TYPE_OFFERINGS.get(location_type, {}).get(region, ())
    return tuple(sorted((row["InstanceType"], row["Location"]) for row in rows))


@cache
def offered_zones(region: str) -> dict[str, frozenset[str]]:
    zones: dict[str, set[str]] = {}
    for name, zone in offerings(region, "availability-zone"):
        zones.setdefault(name, set()).add(zone)
    return {name: frozenset(found) for name, found in zones.items()}


def vcpus(name: str) -> int:
    facts = all_types().get(name)
    return int(facts["VCpuInfo"]["DefaultVCpus"]) if facts else 0


def architectures(name: str) -> list[str]:
    facts = all_types().get(name)
    return list(facts["ProcessorInfo"]["SupportedArchitectures"]) if facts else []


def interface_slots(name: str) -> int:
    """How many network interfaces the type takes, over all its cards."""
    network = all_types()[name].get("NetworkInfo", {})
    cards = sum(card.get("MaximumNetworkInterfaces", 0) for card in network.get("NetworkCards", ()))
    return int(cards or network.get("MaximumNetworkInterfaces", 1))
