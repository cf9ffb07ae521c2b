"""Placement groups: created, described with filters, deleted."""

from __future__ import annotations

from typing import Any

from sandbox.aws.ec2.call import Call
from sandbox.aws.ec2.filters import accepts, compile_filters, tag_facts
from sandbox.aws.ec2.ids import new_id, not_found, require_well_formed
from sandbox.aws.ec2.placement import members
from sandbox.aws.ec2.records import PlacementGroup
from sandbox.aws.ec2.tagging import read_specifications, tag_list
from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError, dry_run_ok, invalid_value, missing_parameter

STRATEGIES = frozenset({"cluster", "spread", "partition"})
MAX_PARTITIONS = 7
FILTERS = frozenset({"group-name", "group-arn", "spread-level", "state", "strategy", "tag-key", "tag-value"})


def create_placement_group(call: Call) -> dict[str, Any]:
    request, world = call.params, call.world
    name = request.get("GroupName")
    if not name:
        raise missing_parameter("GroupName")
    if any(group.name == name for group in world.placement_groups.values()):
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
    world.placement_groups[group.id] = group
    return {"PlacementGroup": _view(world, group)}


def describe_placement_groups(call: Call) -> dict[str, Any]:
    request, world = call.params, call.world
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    chosen = _chosen(world, request.get("GroupIds") or [], request.get("GroupNames") or [])
    return {"PlacementGroups": [_view(world, group) for group in chosen if accepts(filters, _facts(world, group))]}


def _chosen(world: World, ids: list[str], names: list[str]) -> list[PlacementGroup]:
    groups = list(world.placement_groups.values())
    require_well_formed(ids, "pg")
    missing = set(ids) - {group.id for group in groups}
    if missing:
        raise not_found(sorted(missing), "pg", "placement group")
    unknown = set(names) - {group.name for group in groups}
    if unknown:
        raise _unknown(sorted(unknown)[0])
    return [g for g in groups if (not ids and not names) or g.id in ids or g.name in names]


def _unknown(name: str) -> AwsError:
    return AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")


def _facts(world: World, group: PlacementGroup) -> dict[str, list[str]]:
    return {
        "group-name": [group.name],
        "group-arn": [world.arn("placement-group", group.name)],
        "spread-level": [group.spread_level] if group.spread_level else [],
        "state": [group.state],
        "strategy": [group.strategy],
        **tag_facts(group.tags),
    }


def _view(world: World, group: PlacementGroup) -> dict[str, Any]:
    return {
        "GroupName": group.name,
        "GroupId": group.id,
        "GroupArn": world.arn("placement-group", group.name),
        "State": group.state,
        "Strategy": group.strategy,
        "PartitionCount": group.partitions,
        "SpreadLevel": group.spread_level,
        "Tags": tag_list(group.tags),
    }


def delete_placement_group(call: Call) -> dict[str, Any]:
    name, world = call.params.get("GroupName"), call.world
    found = next((group for group in world.placement_groups.values() if group.name == name), None)
    if found is None:
        raise _unknown(str(name))
    if members(world, found):
        raise AwsError("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted.")
    del world.placement_groups[found.id]
    return {"Return": True}
