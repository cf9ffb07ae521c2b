"""Placement groups: create, describe and delete them, and place launches by the strategy of the group.

Rules from EC2's user guide: a cluster group is in one zone, a spread group has at most seven instances per zone, and a
partition group assigns its emptiest partition by default. A partition that EC2 chose is visible once the instance runs.
"""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.ec2.call import Call, new_id, not_found, require_well_formed
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, tag_facts
from tenure.sandbox.aws.ec2.records import Instance, PlacementGroup
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.ec2.tags import read_specifications, tag_list
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, invalid_value, missing_parameter

SPREAD_LIMIT = 7
TERMINATING_STATES = frozenset({"shutting-down", "terminated"})
ANYWHERE = "*"


def group_of(environment: Environment, placement: dict[str, Any]) -> PlacementGroup | None:
    """The group that a launch names. Raises EC2's code for an unknown group."""
    name, group_id = placement.get("GroupName"), placement.get("GroupId")
    if group_id:
        require_well_formed([group_id], "pg")
        if group_id not in environment.placement_groups:
            raise not_found([group_id], "pg", "placement group")
        return environment.placement_groups[group_id]
    if not name:
        return None
    found = next((group for group in environment.placement_groups.values() if group.name == name), None)
    if found is None:
        raise AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    return found


def check_group(group: PlacementGroup | None, placement: dict[str, Any], instance_type: str) -> None:
    """Raises for a type that the strategy does not support, and for an unknown partition."""
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


def enter_group(
    environment: Environment, group: PlacementGroup, zone: str, requested_partition: int | None
) -> int | None:
    """The partition of a new instance, if the group has partitions. Raises if the group is full in the zone."""
    inside = members(environment, group)
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
    return _choose_partition(environment, group, zone, requested_partition, inside)


def _choose_partition(
    environment: Environment, group: PlacementGroup, zone: str, requested_partition: int | None, inside: list[Instance]
) -> int | None:
    every: list[int | None] = [*range(1, (group.partitions or 0) + 1)] or [None]
    numbers = every if requested_partition is None else [requested_partition]
    free = [number for number in numbers if not _is_full(environment, group, zone, number)]
    if not free:
        text = f"There is not enough capacity left in the placement group '{group.name}' in {zone}."
        raise AwsError("InsufficientInstanceCapacity", text)
    return min(free, key=lambda number: (sum(one.partition == number for one in inside), number or 0))


def _is_full(environment: Environment, group: PlacementGroup, zone: str, partition: int | None) -> bool:
    locations = ((where, number) for where in (zone, ANYWHERE) for number in (partition, None))
    return any((group.id, where, number) in environment.full_groups for where, number in locations)


def members(environment: Environment, group: PlacementGroup) -> list[Instance]:
    """Instances in the group that are not shutting down."""
    return [
        one
        for one in environment.instances.values()
        if one.group_id == group.id and one.state not in TERMINATING_STATES
    ]


def visible_partition(instance: Instance) -> int | None:
    """The partition in DescribeInstances: at once if requested, after the instance runs if EC2 chose it."""
    is_requested = instance.data.get("Placement", {}).get("PartitionNumber") is not None
    return instance.partition if is_requested or instance.state != "pending" else None


STRATEGIES = frozenset({"cluster", "spread", "partition"})
MAX_PARTITIONS = 7
FILTERS = frozenset({"group-name", "group-arn", "spread-level", "state", "strategy", "tag-key", "tag-value"})


def create_placement_group(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    name = request.get("GroupName")
    if not name:
        raise missing_parameter("GroupName")
    if any(group.name == name for group in environment.placement_groups.values()):
        raise AwsError("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
    strategy = request.get("Strategy", "cluster")
    if strategy not in STRATEGIES:
        raise invalid_value(f"Invalid value '{strategy}' for Strategy.")
    count = request.get("PartitionCount")
    if count is not None and (strategy != "partition" or not 1 <= count <= MAX_PARTITIONS):
        raise invalid_value(f"Invalid value '{count}' for PartitionCount.")
    if request.get("DryRun"):
        raise dry_run_ok()
    group = PlacementGroup(
        id=new_id("pg"),
        name=name,
        strategy=strategy,
        partitions=(count or MAX_PARTITIONS) if strategy == "partition" else None,
        spread_level=request.get("SpreadLevel", "rack") if strategy == "spread" else None,
        tags=read_specifications(request.get("TagSpecifications")).get("placement-group", {}),
    )
    environment.placement_groups[group.id] = group
    return {"PlacementGroup": _group_view(environment, group)}


def describe_placement_groups(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    chosen = _select_groups(environment, request.get("GroupIds") or [], request.get("GroupNames") or [])
    return {
        "PlacementGroups": [
            _group_view(environment, group)
            for group in chosen
            if matches_filters(filters, _filter_facts(environment, group))
        ]
    }


def _select_groups(environment: Environment, ids: list[str], names: list[str]) -> list[PlacementGroup]:
    groups = list(environment.placement_groups.values())
    require_well_formed(ids, "pg")
    missing = set(ids) - {group.id for group in groups}
    if missing:
        raise not_found(sorted(missing), "pg", "placement group")
    unknown = set(names) - {group.name for group in groups}
    if unknown:
        raise _unknown_group(sorted(unknown)[0])
    return [g for g in groups if (not ids and not names) or g.id in ids or g.name in names]


def _unknown_group(name: str) -> AwsError:
    return AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")


def _filter_facts(environment: Environment, group: PlacementGroup) -> dict[str, list[str]]:
    return {
        "group-name": [group.name],
        "group-arn": [environment.arn("placement-group", group.name)],
        "spread-level": [group.spread_level] if group.spread_level else [],
        "state": [group.state],
        "strategy": [group.strategy],
        **tag_facts(group.tags),
    }


def _group_view(environment: Environment, group: PlacementGroup) -> dict[str, Any]:
    return {
        "GroupName": group.name,
        "GroupId": group.id,
        "GroupArn": environment.arn("placement-group", group.name),
        "State": group.state,
        "Strategy": group.strategy,
        "PartitionCount": group.partitions,
        "SpreadLevel": group.spread_level,
        "Tags": tag_list(group.tags),
    }


def delete_placement_group(call: Call) -> dict[str, Any]:
    name, environment = call.params.get("GroupName"), call.environment
    found = next((group for group in environment.placement_groups.values() if group.name == name), None)
    if found is None:
        raise _unknown_group(str(name))
    if members(environment, found):
        raise AwsError("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted.")
    del environment.placement_groups[found.id]
    return {"Return": True}
