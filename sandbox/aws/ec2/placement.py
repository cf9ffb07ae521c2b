"""Which placement group a launch goes into, and what the group's strategy allows.

Rules from EC2's user guide: a cluster stays in one zone, a spread group takes seven instances in each zone, a partition
group gives an instance that asks for none the emptiest of its partitions. What EC2 chose shows once the instance runs.
"""

from __future__ import annotations

from typing import Any

from sandbox.aws.ec2.ids import not_found, require_well_formed
from sandbox.aws.ec2.records import Instance, PlacementGroup
from sandbox.aws.ec2.types_data import all_types
from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError, bad_combination, invalid_value

SPREAD_LIMIT = 7
GONE = frozenset({"shutting-down", "terminated"})
ANYWHERE = "*"


def group_of(world: World, placement: dict[str, Any]) -> PlacementGroup | None:
    """The group that a launch names. Raises EC2's code for one that does not exist."""
    name, group_id = placement.get("GroupName"), placement.get("GroupId")
    if group_id:
        require_well_formed([group_id], "pg")
        if group_id not in world.placement_groups:
            raise not_found([group_id], "pg", "placement group")
        return world.placement_groups[group_id]
    if not name:
        return None
    found = next((group for group in world.placement_groups.values() if group.name == name), None)
    if found is None:
        raise AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    return found


def check_group(group: PlacementGroup | None, placement: dict[str, Any], instance_type: str) -> None:
    """Raises for a type that the strategy is not for, and for a partition that the group does not have."""
    partition = placement.get("PartitionNumber")
    if partition is not None and (group is None or group.partitions is None):
        raise bad_combination("A partition number needs a placement group of the strategy partition.")
    if group is None:
        return
    supported = all_types()[instance_type].get("PlacementGroupInfo", {}).get("SupportedStrategies", ())
    if group.strategy not in supported:
        raise bad_combination(
            f"The instance type '{instance_type}' does not support placement groups of the strategy {group.strategy}."
        )
    if partition is not None and not 1 <= partition <= (group.partitions or 0):
        raise invalid_value(f"Invalid value '{partition}' for PartitionNumber: there are {group.partitions}.")


def enter_group(world: World, group: PlacementGroup, zone: str, wanted: int | None) -> int | None:
    """The partition that an instance gets, if the group has any. Raises when the group has no room in the zone."""
    inside = members(world, group)
    if group.strategy == "cluster":
        elsewhere = {one.zone for one in inside} - {zone}
        if elsewhere:
            text = f"The placement group '{group.name}' is in use in another availability zone: {min(elsewhere)}"
            raise AwsError("InvalidPlacementGroup.InUse", text)
    if group.spread_level == "rack" and sum(one.zone == zone for one in inside) >= SPREAD_LIMIT:
        raise AwsError(
            "UnfulfillableCapacity",
            f"You've reached the limit of instances in this spread placement group: {SPREAD_LIMIT} in a zone.",
        )
    return _partition(world, group, zone, wanted, inside)


def _partition(
    world: World, group: PlacementGroup, zone: str, wanted: int | None, inside: list[Instance]
) -> int | None:
    every: list[int | None] = [*range(1, (group.partitions or 0) + 1)] or [None]
    numbers = every if wanted is None else [wanted]
    free = [number for number in numbers if not _is_full(world, group, zone, number)]
    if not free:
        text = f"There is not enough capacity left in the placement group '{group.name}' in {zone}."
        raise AwsError("InsufficientInstanceCapacity", text)
    return min(free, key=lambda number: (sum(one.partition == number for one in inside), number or 0))


def _is_full(world: World, group: PlacementGroup, zone: str, partition: int | None) -> bool:
    places = ((where, number) for where in (zone, ANYWHERE) for number in (partition, None))
    return any((group.id, where, number) in world.full_groups for where, number in places)


def members(world: World, group: PlacementGroup) -> list[Instance]:
    """The instances in the group that are not going."""
    return [one for one in world.instances.values() if one.group_id == group.id and one.state not in GONE]


def shown_partition(instance: Instance) -> int | None:
    """The partition that DescribeInstances tells: at once if it was asked for, once it runs if EC2 chose it."""
    asked = instance.data.get("Placement", {}).get("PartitionNumber") is not None
    return instance.partition if asked or instance.state != "pending" else None
